"""What is as DeepSpeed means it, and not what many expect."""

from collections.abc import Iterator
from typing import Any, Final

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.batch import ACCUMULATION
from deepspeed_operator.dsconfig.notes import Note, advice
from deepspeed_operator.dsconfig.offload import OPTIMIZER, PARAM, device_of
from deepspeed_operator.dsconfig.schema import TOP
from deepspeed_operator.dsconfig.setup import ZERO, Setup

# bf16 has 8 bits of precision: of the ninth gradient that is added, much may already be lost.
_BF16_SUMS: Final = 8
# Before it, stage 2 sums in the model's type whatever it is told.
SUMS_AS_TOLD: Final = (0, 19, 8)


def loses_gradients(setup: Setup, accumulation: int) -> bool:
    """Whether so many gradients are added up in bf16, although the version could do it in fp32."""
    obeyed = setup.stage == 1 or (setup.stage > 1 and setup.schema.numbers >= SUMS_AS_TOLD)
    return setup.bf16 and obeyed and not setup.accumulates_in_fp32 and accumulation > _BF16_SUMS


def advice_notes(setup: Setup, accumulation: int | None) -> Iterator[Note]:
    parameters = setup.section("scheduler").get("params")
    name: Any = setup.section("scheduler").get("type")
    if name in ("WarmupLR", "WarmupDecayLR") and object_at(parameters).get("warmup_min_lr", 0) == 0:
        message = "the learning rate of the first step is 0: it changes no weight."
        yield advice(
            ("scheduler", "params", "warmup_min_lr"), Code.ZERO_LEARNING_RATE, message, "Write a small number above 0."
        )
    pinned = [
        section
        for section in (OPTIMIZER, PARAM)
        if device_of(setup, section) != "none" and object_at(setup.section(ZERO).get(section)).get("pin_memory")
    ]
    for section in pinned:
        message = "pinned memory counts against the container's memory and its memlock limit."
        yield advice(
            (ZERO, section, "pin_memory"), Code.PINNED_MEMORY, message, "Give the pod the memory, or write false."
        )
    if accumulation is not None and loses_gradients(setup, accumulation):
        message = f"the gradients of {accumulation} micro steps are added up in bf16, which has 8 bits of precision."
        fix = 'Write data_types: {"grad_accum_dtype": "fp32"}; it costs memory, and time at stage 1.'
        yield advice((ACCUMULATION,), Code.BF16_SUMS, message, fix)
    defaults = _defaults(setup)
    if defaults:
        equal, them = ("equals its default", "it") if len(defaults) == 1 else ("equal their defaults", "them")
        yield advice((), Code.DEFAULT_VALUES, f"{', '.join(defaults)} {equal}.", f"You may remove {them}.")


def _defaults(setup: Setup) -> list[str]:
    """Return the keys that may go: DeepSpeed does the same without them, and did in each version that is known."""
    equal = list(_equal_to_defaults(setup))
    if not equal:
        return []
    from deepspeed_operator.dsconfig.changes import CHANGES, NewDefault  # noqa: PLC0415  # large, and seldom asked

    changed = {".".join(change.path) for change in CHANGES if isinstance(change, NewDefault)}
    return [path for path in equal if path not in changed]


def _equal_to_defaults(setup: Setup) -> Iterator[str]:
    for key, value in setup.config.items():
        entry = setup.schema.sections[TOP].keys.get(key)
        if entry is None:
            continue
        if entry.model is not None:
            by_key = setup.schema.index(entry.model).by_key
            for inner, given in object_at(value).items():
                if inner in by_key and "default" in by_key[inner] and _same(given, by_key[inner]["default"]):
                    yield f"{key}.{inner}"
        elif entry.default is not None and _same(value, entry.default):
            yield key


def _same(given: object, default: object) -> bool:
    return given == default and isinstance(given, bool) == isinstance(default, bool)
