"""What the images install is held by hashes: those of uv.lock, by which everything else of this project is held."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "images"
PINS = sorted(IMAGES.glob("*/*.txt"))


def shell_commands(containerfile: Path) -> Iterator[str]:
    text = re.sub(r"^\s*#.*\n", "", containerfile.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in text.splitlines():
        yield from re.split("&&|;", line) if line.startswith("RUN ") else ()


@pytest.mark.parametrize("containerfile", sorted(IMAGES.glob("*/*ontainerfile")), ids=lambda path: path.name)
def test_pip_fetches_nothing_without_its_hash(containerfile: Path) -> None:
    fetching = [
        each for each in shell_commands(containerfile) if re.search(r"\bpip .*\b(install|download|wheel) ", each)
    ]
    assert fetching
    for command in fetching:
        assert "--require-hashes" in command or "--no-index" in command, command


@pytest.mark.parametrize("pins", PINS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_hashes_are_those_of_the_lock(pins: Path) -> None:
    """Where this fails, `make requirements` writes the file again."""
    lock: dict[str, Any] = tomllib.loads((ROOT / "uv.lock").read_text())
    locked = {
        (package["name"], package["version"]): {
            file["hash"] for file in [package.get("sdist"), *package.get("wheels", ())] if file
        }
        for package in lock["package"]
        if "version" in package
    }
    entries = re.findall(r"^(\S+)==(\S+)[^\\]*((?:\\\n\s+--hash=\S+[ ]?)+)", pins.read_text(), re.MULTILINE)
    assert entries
    for name, version, hashes in entries:
        assert set(re.findall("--hash=(\\S+)", hashes)) == locked[name, version], name


def test_the_groups_name_what_is_pinned() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    pinned = "\n".join(path.read_text() for path in PINS)
    for group in ("worker", "worker-build", "huggingface", "operator-build"):
        for requirement in groups[group]:
            assert re.search(rf"^{re.escape(requirement)}\b", pinned, re.MULTILINE), requirement
