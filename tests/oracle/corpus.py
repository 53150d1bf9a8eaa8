"""Public configurations to judge. They are not ours to copy: they lie beside the project, where a machine has them."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any, cast

_ROOT = Path(__file__).resolve().parents[2]
_NEEDED = "the oracle tests need a directory of ds_config files: set DSJ_CONFIG_CORPUS"


def directory() -> Path:
    """A sibling of the project or of one of its copies, or what DSJ_CONFIG_CORPUS says."""
    return Path(os.environ.get("DSJ_CONFIG_CORPUS") or _ROOT.parent / "shared" / "ds_configs")


def missing() -> str:
    """Why there is no corpus, empty if there is one."""
    found = directory()
    return "" if any(found.glob("*__*.json")) else f"{_NEEDED} (there is none in {found})"


@cache
def configurations() -> dict[str, dict[str, Any]]:
    """By file name, those that can be read; DeepSpeed reads the others no more than we do."""
    found = {path.name: _read(path.read_text(encoding="utf-8", errors="replace")) for path in _files()}
    return {name: values for name, values in found.items() if values is not None}


def unreadable() -> list[str]:
    return [path.name for path in _files() if path.name not in configurations()]


def _files() -> list[Path]:
    return sorted(path for path in directory().glob("*.json") if path.name != "verdicts.json")


def _read(text: str) -> dict[str, Any] | None:
    try:
        values: object = json.loads(text)
    except json.JSONDecodeError:
        return None
    return cast(dict[str, Any], values) if isinstance(values, dict) else None
