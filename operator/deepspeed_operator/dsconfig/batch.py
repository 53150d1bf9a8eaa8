"""Batch arithmetic as DeepSpeed does it (runtime/config.py, `_configure_train_batch_size`).

train_batch_size = train_micro_batch_size_per_gpu × gradient_accumulation_steps × data-parallel ranks
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from deepspeed_operator.api.status import Batch, Finding, Level
from deepspeed_operator.dsconfig.wording import quoted

TRAIN: Final = "train_batch_size"
MICRO: Final = "train_micro_batch_size_per_gpu"
ACCUMULATION: Final = "gradient_accumulation_steps"
KEYS: Final = (TRAIN, MICRO, ACCUMULATION)
AUTO: Final = "auto"

# With these fewer ranks than the world may see different data, and the script decides how many.
_DECLARE_PARALLELISM = ("sequence_parallel_size", "data_parallel_size", "mesh_param", "pipeline")
_LARGEST = 2**63 - 1  # status holds 64-bit integers
_SEARCH = 10_000  # a divisor further away than this is no help to anybody


@dataclass(frozen=True, slots=True)
class Given:
    """The batch keys as they were written; a key that is absent or null is in neither."""

    numbers: Mapping[str, int]
    auto: tuple[str, ...]
    findings: tuple[Finding, ...]  # about values of a wrong type


def derive_batch(config: Mapping[str, Any], data_parallel: int, where: str = "spec.dsConfig") -> Batch | list[Finding]:
    """Return the batch sizes DeepSpeed would compute, or why it would refuse the configuration."""
    given = read_batch_keys(config, where)
    errors = [finding for finding in given.findings if finding.level is Level.ERROR]
    errors += [_not_positive(key, number, where) for key, number in given.numbers.items() if number <= 0]
    if errors:
        return errors
    if given.auto:
        return _batch(given.numbers)
    if TRAIN not in given.numbers and MICRO not in given.numbers:
        return [_underdetermined(where)]
    derived = derive(given.numbers, data_parallel)
    if derived[TRAIN] > _LARGEST:
        return [
            _error(f"{where}.{MICRO}", "the resulting train_batch_size is beyond 64 bits.", "Write smaller numbers.")
        ]
    if derived[TRAIN] != derived[MICRO] * derived[ACCUMULATION] * data_parallel:
        return [_contradiction(given.numbers, derived, data_parallel, where, _declared_parallelism(config))]
    return _batch(derived)


def read_batch_keys(config: Mapping[str, Any], where: str) -> Given:
    """Sort the three keys into numbers, "auto" and findings. DeepSpeed takes True for 1 and 4.0 for 4."""
    numbers: dict[str, int] = {}
    auto: list[str] = []
    findings: list[Finding] = []
    for key in KEYS:
        value = config.get(key)
        if value is None:
            continue
        if value == AUTO:
            auto.append(key)
        elif isinstance(value, int | float) and value == value // 1 and abs(value) <= _LARGEST:
            numbers[key] = int(value)
            if type(value) is not int:
                findings.append(_loose_type(key, value, where))
        else:
            message = (
                f"must be a whole number, not {quoted(value)}: DeepSpeed fails on it or computes part of a sample."
            )
            findings.append(
                _error(f"{where}.{key}", message, f'Write {key}: 4, for example, or "auto" with Hugging Face.')
            )
    return Given(numbers, tuple(auto), tuple(findings))


def derive(numbers: Mapping[str, int], data_parallel: int) -> dict[str, int]:
    """Fill in the missing keys, by DeepSpeed's floor divisions; the result need not multiply."""
    train, micro, accumulation = (numbers.get(key) for key in KEYS)
    if train is None:
        assert micro is not None, "one of train and micro batch size is given"
        accumulation = accumulation or 1
        train = micro * accumulation * data_parallel
    elif micro is None:
        accumulation = accumulation or 1
        micro = train // data_parallel // accumulation
    elif accumulation is None:
        accumulation = train // micro // data_parallel
    return {TRAIN: train, MICRO: micro, ACCUMULATION: accumulation}


def nearest_choices(numbers: Mapping[str, int], data_parallel: int) -> list[tuple[str, int]]:
    """Return changes of one key, each of which alone makes the given numbers multiply, nearest first for each key."""
    train = numbers[TRAIN]
    unit = numbers.get(MICRO, 1) * numbers.get(ACCUMULATION, 1) * data_parallel
    if len(numbers) == len(KEYS):
        sizes = [unit]
    else:
        below = train // unit * unit
        sizes = [size for size in (below, below + unit) if size > 0]
    choices = [(TRAIN, size) for size in sizes if size <= _LARGEST]
    for key, other in ((ACCUMULATION, MICRO), (MICRO, ACCUMULATION)):
        if key in numbers:
            value = _exact(train, numbers.get(other), numbers[key], data_parallel)
            choices += [(key, value)] if value else []
    return choices


def _exact(train: int, other: int | None, now: int, data_parallel: int) -> int | None:
    """Return the value nearest to `now` with which train is a product, where the other factor may be free."""
    share, remainder = divmod(train, data_parallel * (other or 1))
    if remainder or share == 0:
        return None
    if other is not None:
        return share
    near = (value for step in range(_SEARCH) for value in (now + step, now - step))
    return next((value for value in near if value > 0 and share % value == 0), None)


def _declared_parallelism(config: Mapping[str, Any]) -> str:
    return ", ".join(key for key in _DECLARE_PARALLELISM if config.get(key))


def _contradiction(
    given: Mapping[str, int], derived: Mapping[str, int], data_parallel: int, where: str, parallelism: str
) -> Finding:
    train, micro, accumulation = (derived[key] for key in KEYS)
    missing = [key for key in KEYS if key not in given]
    computed = f" ({', '.join(f'{key} {derived[key]}' for key in missing)} by DeepSpeed's division)" if missing else ""
    doubt = f" With {parallelism} fewer ranks may see different data: then DeepSpeed divides by that number."
    return Finding(
        level=Level.WARNING if parallelism else Level.ERROR,
        path=f"{where}.{TRAIN}",
        message=f"{train} ≠ {micro} × {accumulation} × {data_parallel}: {TRAIN} must equal {MICRO} × {ACCUMULATION} × "
        f"the number of data-parallel ranks, which is {data_parallel}{computed}.{doubt if parallelism else ''}",
        fix="Write " + ", or ".join(f"{key} {value}" for key, value in nearest_choices(given, data_parallel)) + ".",
    )


def _underdetermined(where: str) -> Finding:
    return _error(
        where,
        f"Either {TRAIN} or {MICRO} needs to be provided: DeepSpeed derives the other batch sizes from it.",
        f"Write {MICRO}, the samples that one rank takes at once.",
    )


def _not_positive(key: str, number: int, where: str) -> Finding:
    return _error(f"{where}.{key}", f"{number} has to be greater than 0.", f"Write {key}: 1 or more.")


def _loose_type(key: str, value: float, where: str) -> Finding:
    message = f"{quoted(value)} is not an integer; DeepSpeed takes it for {int(value)}, a data loader may refuse it."
    return Finding(level=Level.WARNING, path=f"{where}.{key}", message=message, fix=f"Write {key}: {int(value)}.")


def _batch(numbers: Mapping[str, int]) -> Batch:
    return Batch(train=numbers.get(TRAIN), micro_per_gpu=numbers.get(MICRO), accumulation=numbers.get(ACCUMULATION))


def _error(path: str, message: str, fix: str) -> Finding:
    return Finding(level=Level.ERROR, path=path, message=message, fix=fix)
