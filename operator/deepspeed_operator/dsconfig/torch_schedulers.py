"""PyTorch's schedulers by name: DeepSpeed makes them as they stand, and steps them without arguments.

The table is read from the sources of PyTorch's releases (tests/oracle/torch_schedulers.py).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from deepspeed_operator.api.finding import Code
from deepspeed_operator.dsconfig.nearest import NearNames
from deepspeed_operator.dsconfig.notes import Note, Path, refused, warning
from deepspeed_operator.dsconfig.setup import Setup

OWN: Final = "WarmupLR, WarmupDecayLR, WarmupCosineLR or OneCycle"
# What only code can give.
_OBJECTS: Final = {"lr_lambda": "a function", "schedulers": "schedulers"}
_PLATEAU: Final = "ReduceLROnPlateau"


@dataclass(frozen=True)
class _Table:
    versions: list[str]
    classes: dict[str, Any]


@cache
def _table() -> _Table:
    return _Table(
        **json.loads(files("deepspeed_operator.dsconfig").joinpath("torch_schedulers.json").read_text("utf-8"))
    )


def wrapper(setup: Setup) -> str | None:
    """Return what makes DeepSpeed wrap the optimizer, so that none of PyTorch's schedulers takes it for one."""
    if setup.stage:
        return f"ZeRO stage {setup.stage}"
    return "fp16" if setup.fp16 else "bf16" if setup.bf16 else None


def torch_scheduler_notes(setup: Setup, name: str, parameters: Mapping[str, Any]) -> Iterator[Note]:
    """Judge a scheduler that DeepSpeed does not have itself."""
    wrapped = wrapper(setup)
    if wrapped is not None:
        message = f"with {wrapped} DeepSpeed wraps the optimizer, which {name} refuses: it is not an Optimizer."
        fix = f"Write {OWN}, or make {name} in the script and pass it to deepspeed.initialize."
        yield refused_scheduler(("type",), Code.WRAPPED_OPTIMIZER, message, fix)
        return
    known = _table().classes.get(name)
    if known is None:
        return
    yield from _missing(name, known["required"], parameters)
    near = NearNames()
    for key in parameters:
        versions: list[str] | None = known["parameters"].get(key)
        if versions is None:
            yield _unknown(name, key, near.nearest(key, known["parameters"]))
        elif versions:
            message = f"{name} has no such parameter in PyTorch newer than {versions[-1]}, and fails with it there."
            yield warning(("scheduler", "params", key), Code.UNKNOWN_KEY, message, f"Remove {key}.")
    if name == _PLATEAU:
        message = "DeepSpeed steps it without a metric, and then with the train batch size for one: it sees no plateau."
        yield warning(
            ("scheduler", "type"), Code.SCHEDULER_NEEDS_METRIC, message, f"Write {OWN}, or step it in the script."
        )


def _missing(name: str, required: list[str], parameters: Mapping[str, Any]) -> Iterator[Note]:
    for key in required:
        if key in _OBJECTS:
            message = f"{name} needs {_OBJECTS[key]} for {key}, which a configuration cannot hold."
            yield refused_scheduler(
                ("type",), Code.SCHEDULER_NEEDS_CODE, message, f"Write {OWN}, or make {name} in the script."
            )
        elif key not in parameters:
            yield refused_scheduler(
                ("params", key), Code.MISSING_KEY, f"is missing, and {name} needs it.", f"Write {key}."
            )


def _unknown(name: str, key: str, close: str | None) -> Note:
    versions = _table().versions
    tested = f"PyTorch {versions[0]} to {versions[-1]}"
    if close is None:
        message = f"{name} has no such parameter in {tested}, and fails with it."
        fix = f"Remove {key}, unless the image's PyTorch has it."
        return warning(("scheduler", "params", key), Code.UNKNOWN_KEY, message, fix)
    message = f"{name} has no such parameter in {tested}: the engine fails."
    return refused_scheduler(("params", key), Code.UNKNOWN_KEY, message, f"Write {close}.")


def refused_scheduler(path: Path, code: Code, message: str, fix: str) -> Note:
    """Say what is refused of the scheduler when the engine starts; `path` begins in its section."""
    return refused(("scheduler", *path), code, message, fix)
