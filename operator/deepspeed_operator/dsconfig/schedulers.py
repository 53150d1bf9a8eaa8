"""The learning-rate scheduler that a configuration asks for, and whether the engine can make it."""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Final, cast

from deepspeed_operator.api.finding import Code
from deepspeed_operator.dsconfig.batch import AUTO
from deepspeed_operator.dsconfig.nearest import NearNames, nearest
from deepspeed_operator.dsconfig.notes import Note, Path, warning
from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.dsconfig.torch_schedulers import refused_scheduler, torch_scheduler_notes, wrapper
from deepspeed_operator.dsconfig.wording import quoted

_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "WarmupDecayLR": ("total_num_steps",),
    "WarmupCosineLR": ("total_num_steps",),
    "OneCycle": ("cycle_min_lr", "cycle_max_lr"),
}
# Sizes that newer versions check: DeepSpeed divides by them.
_ABOVE_0: Final[Mapping[str, tuple[str, type | UnionType]]] = {
    "warmup_num_steps": ("a whole number", int),
    "lr_range_test_step_size": ("a whole number", int),
    "cycle_first_step_size": ("a number", int | float),
}
_TYPE: Final = "warmup_type"
_TYPES: Final = ("log", "linear")


def scheduler_notes(setup: Setup) -> Iterator[Note]:
    section = setup.section("scheduler")
    name: Any = section.get("type")
    if name is None:
        return
    if not isinstance(name, str):
        yield refused_scheduler(
            ("type",), Code.INVALID_VALUE, f"must be text, not {quoted(name)}.", "Write WarmupLR, for example."
        )
        return
    if name not in setup.schema.schedulers and name not in setup.schema.torch_schedulers:
        others = setup.schema.torch_schedulers if wrapper(setup) is None else frozenset[str]()
        close = nearest(name, setup.schema.schedulers | others)
        message = f"DeepSpeed does not recognize the scheduler {quoted(name)}, nor does torch.optim.lr_scheduler."
        yield refused_scheduler(
            ("type",), Code.UNKNOWN_SCHEDULER, message, f"Write {close}." if close else "Write WarmupLR, for example."
        )
        return
    parameters: Any = section.get("params")
    if not isinstance(parameters, dict):
        wrong = "is missing" if parameters is None else f"must be an object {{…}}, not {quoted(parameters)}"
        message = f"{wrong}: DeepSpeed passes it on as arguments, and fails without it."
        yield refused_scheduler(("params",), Code.MISSING_KEY, message, "Write params: {…}.")
        return
    given = cast(Mapping[str, Any], parameters)
    if name in setup.schema.schedulers:
        yield from _parameters(setup, name, given)
    else:
        yield from torch_scheduler_notes(setup, name, given)


def _parameters(setup: Setup, name: str, parameters: Mapping[str, Any]) -> Iterator[Note]:
    accepted, near = setup.schema.scheduler_params[name], NearNames()
    for key in parameters:
        if key not in accepted:
            close = near.nearest(key, accepted)
            message = f"{name} has no such parameter: it fails when the engine starts."
            yield refused_scheduler(
                ("params", key), Code.UNKNOWN_KEY, message, f"Write {close}." if close else f"Remove {key}."
            )
    for key in _REQUIRED.get(name, ()):
        if key not in parameters:
            yield refused_scheduler(
                ("params", key), Code.MISSING_KEY, f"is missing, and {name} needs it.", f"Write {key}."
            )
    yield from _texts(name, parameters)
    checked = setup.schema.starts_refusing("warmup_num_steps")
    for key, (words, kind) in _ABOVE_0.items():
        value = parameters.get(key, 1)
        divides = key == "cycle_first_step_size" and value == 0  # in all versions
        wrong = divides or (checked and not (isinstance(value, kind) and value > 0))
        if key in accepted and value != AUTO and wrong:
            message = f"must be {words} above 0, not {quoted(value)}."
            yield refused_scheduler(("params", key), Code.INVALID_VALUE, message, f"Write {key}: 1000, for example.")


def _texts(name: str, parameters: Mapping[str, Any]) -> Iterator[Note]:
    """What DeepSpeed's own schedulers, all of whose parameters are numbers but one, make of text and objects."""
    for key, value in parameters.items():
        if type(value) not in {str, dict} or value == AUTO:
            continue
        path: Path = ("params", key)
        if key != _TYPE:
            fix = "Write it without quotes." if type(value) is str else "Write a number."
            yield refused_scheduler(path, Code.INVALID_VALUE, f"must be a number, not {quoted(value)}.", fix)
        elif value not in _TYPES:
            message = f"{name} knows {' and '.join(_TYPES)}: {quoted(value)} quietly becomes {_TYPES[0]}."
            yield warning(("scheduler", *path), Code.NO_EFFECT, message, f"Write {_TYPES[0]} or {_TYPES[1]}.")
