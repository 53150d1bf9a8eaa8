"""Batch arithmetic as DeepSpeed does it (runtime/config.py, `_configure_train_batch_size`).

train_batch_size = train_micro_batch_size_per_gpu × gradient_accumulation_steps × divisor
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.status import Batch
from deepspeed_operator.dsconfig.notes import Note, error, warning
from deepspeed_operator.dsconfig.wording import quoted

TRAIN: Final = "train_batch_size"
MICRO: Final = "train_micro_batch_size_per_gpu"
ACCUMULATION: Final = "gradient_accumulation_steps"
KEYS: Final = (TRAIN, MICRO, ACCUMULATION)
AUTO: Final = "auto"

_LARGEST = 2**63 - 1  # status holds 64-bit integers
_SEARCH = 10_000  # a divisor further away than this is no help to anybody


@dataclass(frozen=True, slots=True)
class Given:
    """The batch keys as they were written; a key that is absent or null is in neither."""

    numbers: Mapping[str, int]
    auto: tuple[str, ...]
    notes: tuple[Note, ...]  # about values of a wrong type


@dataclass(frozen=True, slots=True)
class Derived:
    """The batch sizes that DeepSpeed would compute; `batch` is None where it would refuse them."""

    batch: Batch | None
    notes: list[Note] = field(default_factory=list[Note])


def derive_batch(config: Mapping[str, Any], divisor: int) -> Derived:
    """Return the batch sizes DeepSpeed would compute, or why it would refuse the configuration."""
    given = read_batch_keys(config)
    notes = list(given.notes)
    notes += [_not_positive(key, number) for key, number in given.numbers.items() if number <= 0]
    if any(note.code is not Code.LOOSE_TYPE for note in notes):
        return Derived(None, notes)
    if given.auto:
        return Derived(_batch(given.numbers), notes)
    if TRAIN not in given.numbers and MICRO not in given.numbers:
        return Derived(None, [*notes, _underdetermined()])
    derived = derive(given.numbers, divisor)
    if derived[TRAIN] > _LARGEST:
        message = "the resulting train_batch_size is beyond 64 bits."
        return Derived(None, [*notes, error((MICRO,), Code.NUMBER_TOO_LARGE, message, "Write smaller numbers.")])
    if derived[TRAIN] != derived[MICRO] * derived[ACCUMULATION] * divisor:
        return Derived(None, [*notes, _contradiction(given.numbers, derived, divisor)])
    return Derived(_batch(derived), notes)


def read_batch_keys(config: Mapping[str, Any]) -> Given:
    """Sort the three keys into numbers, "auto" and notes. DeepSpeed takes True for 1 and 4.0 for 4."""
    numbers: dict[str, int] = {}
    auto: list[str] = []
    notes: list[Note] = []
    for key in KEYS:
        value = config.get(key)
        if value is None:
            continue
        if value == AUTO:
            auto.append(key)
        elif isinstance(value, int | float) and value == value // 1 and abs(value) <= _LARGEST:
            numbers[key] = int(value)
            if type(value) is not int:
                notes.append(_loose_type(key, value))
        else:
            notes.append(_not_whole(key, value))
    return Given(numbers, tuple(auto), tuple(notes))


def derive(numbers: Mapping[str, int], divisor: int) -> dict[str, int]:
    """Fill in the missing keys, by DeepSpeed's floor divisions; the result need not multiply."""
    train, micro, accumulation = (numbers.get(key) for key in KEYS)
    if train is None:
        assert micro is not None, "one of train and micro batch size is given"
        accumulation = accumulation or 1
        train = micro * accumulation * divisor
    elif micro is None:
        accumulation = accumulation or 1
        micro = train // divisor // accumulation
    elif accumulation is None:
        accumulation = train // micro // divisor
    return {TRAIN: train, MICRO: micro, ACCUMULATION: accumulation}


def nearest_choices(numbers: Mapping[str, int], divisor: int) -> list[tuple[str, int]]:
    """Return changes of one key, each of which alone makes the given numbers multiply, nearest first for each key."""
    train = numbers[TRAIN]
    unit = numbers.get(MICRO, 1) * numbers.get(ACCUMULATION, 1) * divisor
    if len(numbers) == len(KEYS):
        sizes = [unit]
    else:
        below = train // unit * unit
        sizes = [size for size in (below, below + unit) if size > 0]
    choices = [(TRAIN, size) for size in sizes if size <= _LARGEST]
    for key, other in ((ACCUMULATION, MICRO), (MICRO, ACCUMULATION)):
        if key in numbers:
            value = _exact(train, numbers.get(other), numbers[key], divisor)
            choices += [(key, value)] if value else []
    return choices


def _exact(train: int, other: int | None, now: int, divisor: int) -> int | None:
    """Return the value nearest to `now` with which train is a product, where the other factor may be free."""
    share, remainder = divmod(train, divisor * (other or 1))
    if remainder or share == 0:
        return None
    if other is not None:
        return share
    near = (value for step in range(_SEARCH) for value in (now + step, now - step))
    return next((value for value in near if value > 0 and share % value == 0), None)


def _contradiction(given: Mapping[str, int], derived: Mapping[str, int], divisor: int) -> Note:
    train, micro, accumulation = (derived[key] for key in KEYS)
    missing = [key for key in KEYS if key not in given]
    computed = f" ({', '.join(f'{key} {derived[key]}' for key in missing)} by DeepSpeed's division)" if missing else ""
    message = (
        f"{train} ≠ {micro} × {accumulation} × {divisor}: {TRAIN} must equal {MICRO} × {ACCUMULATION} × "
        f"the number of data-parallel ranks, which is {divisor}{computed}."
    )
    fix = "Write " + ", or ".join(f"{key} {value}" for key, value in nearest_choices(given, divisor)) + "."
    return error((TRAIN,), Code.BATCH_SIZE, message, fix)


def _underdetermined() -> Note:
    message = f"Either {TRAIN} or {MICRO} needs to be provided: DeepSpeed derives the other batch sizes from it."
    return error((), Code.NO_BATCH_SIZE, message, f"Write {MICRO}, the samples that one rank takes at once.")


def _not_positive(key: str, number: int) -> Note:
    return error((key,), Code.BATCH_SIZE, f"{number} has to be greater than 0.", f"Write {key}: 1 or more.")


def _not_whole(key: str, value: object) -> Note:
    message = f"must be a whole number, not {quoted(value)}: DeepSpeed fails on it or computes part of a sample."
    code = Code.INVALID_VALUE
    if isinstance(value, int | float):
        code = Code.FRACTIONAL_BATCH_SIZE
        if value == value // 1:
            code = Code.NUMBER_TOO_LARGE
            message = f"must be a whole number of 64 bits, not {quoted(value)}: no data loader counts further."
    return error((key,), code, message, f'Write {key}: 4, for example, or "auto" with Hugging Face.')


def _loose_type(key: str, value: float) -> Note:
    message = f"{quoted(value)} is not an integer; DeepSpeed takes it for {int(value)}, a data loader may refuse it."
    return warning((key,), Code.LOOSE_TYPE, message, f"Write {key}: {int(value)}.")


def _batch(numbers: Mapping[str, int]) -> Batch:
    return Batch(train=numbers.get(TRAIN), micro_per_gpu=numbers.get(MICRO), accumulation=numbers.get(ACCUMULATION))
