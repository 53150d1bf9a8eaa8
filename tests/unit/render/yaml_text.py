"""Manifests as a reader likes them: text files as blocks, nothing by reference."""

from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)  # pyright: ignore[reportUnknownMemberType]


_Dumper.add_representer(str, _text)


def to_yaml(documents: list[dict[str, Any]]) -> str:
    """Return the documents as one YAML stream."""
    return yaml.dump_all(  # pyright: ignore[reportUnknownMemberType]
        documents, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True, explicit_start=True
    )
