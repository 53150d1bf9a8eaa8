"""Puts the programs of examples/ into the ConfigMaps beside their jobs: `python -m dev.demo.embed`."""

import re
import textwrap
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
# Each manifest, and the program that is its train.py.
PROGRAMS = {
    "quickstart.yaml": "train.py",
    "quickstart-deepspeed-launcher.yaml": "train.py",
    "huggingface-trainer.yaml": "huggingface_trainer.py",
    "accelerate.yaml": "accelerate_loop.py",
    "lora.yaml": "lora.py",
    "resume.yaml": "resume.py",
}

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
    for name, program in PROGRAMS.items():
        path = EXAMPLES / name
        path.write_text(embedded(path.read_text(), (EXAMPLES / program).read_text()))


if __name__ == "__main__":
    main()
