"""Public configurations to judge. They are not ours to copy: they lie beside the project, where a machine has them."""

import os
from functools import cache
from pathlib import Path
from typing import Any

from deepspeed_operator.dsconfig.source import parse_config

_ROOT = Path(__file__).resolve().parents[2]
_NEEDED = "the oracle tests need a directory of ds_config files: set DSJ_CONFIG_CORPUS"


def directory() -> Path:
    """A sibling of the project, or what DSJ_CONFIG_CORPUS says."""
    return Path(os.environ.get("DSJ_CONFIG_CORPUS") or _ROOT.parent / "shared" / "ds_configs")


def missing() -> str:
    """Why there is no corpus, empty if there is one."""
    return "" if texts() else f"{_NEEDED} (there is none in {directory()})"


@cache
def texts() -> dict[str, str]:
    """What the files say, by file name."""
    files = sorted(path for path in directory().glob("*.json") if path.name != "verdicts.json")
    return {path.name: path.read_text(encoding="utf-8", errors="replace") for path in files}


@cache
def configurations() -> dict[str, dict[str, Any]]:
    """By file name, those that can be read: DeepSpeed cannot read the others either."""
    read = {name: parse_config(text) for name, text in texts().items()}
    return {name: values for name, values in read.items() if isinstance(values, dict)}
