"""Configurations to judge: those written for these tests, and where a machine has them, public ones.

The public ones are not ours to copy: they lie beside the project.
"""

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from deepspeed_operator.dsconfig.source import parse_config

_ROOT = Path(__file__).resolve().parents[2]
_OWN = Path(__file__).with_name("configurations.txt")
_NAME = re.compile(r"^== (\S+)\n", re.MULTILINE)


def directory() -> Path:
    """A sibling of the project, or what DSJ_CONFIG_CORPUS says."""
    return Path(os.environ.get("DSJ_CONFIG_CORPUS") or _ROOT.parent / "shared" / "ds_configs")


@cache
def own() -> dict[str, str]:
    """What the files written for these tests say, by name."""
    _, *parts = _NAME.split(_OWN.read_text(encoding="utf-8"))
    return dict(zip(parts[::2], parts[1::2], strict=True))


@cache
def public() -> dict[str, str]:
    """What the public files say, by file name; nothing where there are none."""
    files = sorted(path for path in directory().glob("*.json") if path.name != "verdicts.json")
    return {path.name: path.read_text(encoding="utf-8", errors="replace") for path in files}


def texts() -> dict[str, str]:
    return {**own(), **public()}


@cache
def configurations() -> dict[str, dict[str, Any]]:
    """By name, those that can be read: DeepSpeed cannot read the others either."""
    read = {name: parse_config(text) for name, text in texts().items()}
    return {name: values for name, values in read.items() if isinstance(values, dict)}
