"""Keys that the engine needs when it starts, in the sections that are on."""

from collections.abc import Iterator, Mapping
from typing import Final

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.notes import Note, refused
from deepspeed_operator.dsconfig.schema import TOP
from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.dsconfig.wording import quoted

_Section = tuple[str, ...]
_CURRICULUM: Final = "curriculum_learning"
_NEEDED: Final[Mapping[_Section, tuple[str, ...]]] = {
    (_CURRICULUM,): ("min_difficulty", "max_difficulty", "schedule_type"),
    ("progressive_layer_drop",): ("theta", "gamma"),
    ("data_efficiency", "data_routing", "random_ltd"): (
        "total_layer_num",
        "random_ltd_layer_num",
        "random_ltd_schedule",
    ),
}
_LINEAR: Final = ("total_curriculum_step", "difficulty_step")
# What the schedules of a curriculum need in schedule_config.
_SCHEDULES: Final[Mapping[str, tuple[str, ...]]] = {
    "fixed_linear": _LINEAR,
    "fixed_root": (*_LINEAR, "root_degree"),
    "fixed_discrete": ("difficulty", "max_step"),
    "custom": (),
}


def needed_notes(setup: Setup) -> Iterator[Note]:
    for path, keys in _NEEDED.items():
        section = object_at(setup.config, *path)
        if not section.get("enabled") or path[0] not in setup.schema.sections[TOP].keys:
            continue
        yield from _missing(setup, path, keys, path[-1])
        if path == (_CURRICULUM,) and "schedule_type" in section:
            yield from _schedule(setup, section["schedule_type"])


def _schedule(setup: Setup, kind: object) -> Iterator[Note]:
    if isinstance(kind, str) and kind in _SCHEDULES:
        yield from _missing(setup, (_CURRICULUM, "schedule_config"), _SCHEDULES[kind], f"the schedule {kind}")
        return
    message = f"must be one of {', '.join(_SCHEDULES)}, not {quoted(kind)}."
    yield refused((_CURRICULUM, "schedule_type"), Code.INVALID_VALUE, message, "Write fixed_linear, for example.")


def _missing(setup: Setup, path: _Section, keys: tuple[str, ...], what: str) -> Iterator[Note]:
    for key in keys:
        if key not in object_at(setup.config, *path):
            message = f"is missing, and {what} needs it when the engine starts."
            yield refused((*path, key), Code.MISSING_KEY, message, f"Write {key}.")
