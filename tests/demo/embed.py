"""Puts examples/train.py into the ConfigMaps of the examples: `python -m tests.demo.embed`."""

import re
import textwrap
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
EMBEDDING = tuple(EXAMPLES / name for name in ("quickstart.yaml", "quickstart-deepspeed-launcher.yaml"))

_BLOCK = re.compile(r"(?<=^  train\.py: \|\n)(?:    .*\n|\n)*", re.MULTILINE)


def embedded(manifest: str, program: str) -> str:
    """Return the manifest with the program as the value of its key train.py."""
    block = textwrap.indent(program, "    ")
    text, count = _BLOCK.subn(lambda _: block, manifest)
    if count != 1:
        raise ValueError(f"a manifest has one key train.py, not {count}")
    return text


def main() -> None:
    """Rewrite the manifests."""
    program = (EXAMPLES / "train.py").read_text()
    for path in EMBEDDING:
        path.write_text(embedded(path.read_text(), program))


if __name__ == "__main__":
    main()
