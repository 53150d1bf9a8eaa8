"""Manifests as YAML that people read."""

import re
from typing import Any, cast

import yaml

from deepspeed_operator.api.untyped import Json
from deepspeed_operator.cli.kube_yaml import parse_yaml


def yaml_text(manifest: Json) -> str:
    """Return the manifest as kubectl reads it back, its keys in their order."""
    return cast(Any, yaml).dump(manifest, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=120)


class _Writer(yaml.SafeDumper):
    """Writes YAML as people do: lists below their key are set in, and texts of several lines are blocks."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _text(writer: Any, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _is_other_to_kubectl(text) else None
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _is_other_to_kubectl(text: str) -> bool:
    """Whether a text without quotes is a number or a boolean to kubectl, and none to this library."""
    if not re.fullmatch(r"[-+.\w]{1,40}", text):
        return False
    return not isinstance(next(parse_yaml(text)).root.value, str)


_Writer.add_representer(str, _text)
