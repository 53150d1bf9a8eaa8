"""The smallest change by which a job that does not fit would."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from deepspeed_operator.dsconfig.batch import ACCUMULATION, MICRO, TRAIN
from deepspeed_operator.dsconfig.setup import ZERO
from deepspeed_operator.plan.engine.partitioning import runs
from deepspeed_operator.plan.memory.case import Case
from deepspeed_operator.plan.memory.fit import Fit

# A job that ran out of memory although it was predicted to fit needs at least this much less; so does one that failed
# to get what it asked for, and might have asked for more.
_LESS: Final = 0.9
_SMALL_BUCKET: Final = 50_000_000
_STAGES: Final = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change in words; `fits`: True, or Unknown where what is predicted of it may be wrong by too much.

    `values`: by their paths what to write into the configuration; None where the script changes, too.
    """

    change: str
    fits: Fit
    values: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return f"The smallest change that {'fits' if self.fits is Fit.YES else 'may fit'}: {self.change}"


def smallest_change(case: Case, capacity: int, allocated: int = 0) -> Remedy | None:
    """Return the first change that fits, of those that keep the global batch, in the order of what they cost.

    `allocated`: bytes that PyTorch had, or wanted, when it failed: where it is more than was predicted, so is the rest.
    """
    memory = case.memory
    more, outside = max(1.0, allocated / memory.size), memory.outside.size
    bound = min(capacity, (memory.size * more + outside) * _LESS)
    for words, changed in _changes(case):
        if runs(changed.model, changed.config) and changed.memory.size * more + outside <= bound:
            values = dict(_values(case, changed)) if changed.model == case.model else None
            return Remedy(words, changed.fit(capacity).fit, values)
    return None


def _values(case: Case, changed: Case) -> Iterator[tuple[str, Any]]:
    """Yield what is written otherwise; the three batch sizes multiply as before."""
    for key, value in changed.config.items():
        before = case.config.get(key)
        if key == ZERO and isinstance(before, Mapping):
            section: Mapping[str, Any] = before  # pyright: ignore[reportUnknownVariableType] -- anything may be there
            yield from ((f"{ZERO}.{name}", inner) for name, inner in value.items() if section.get(name) != inner)
        elif value != before:
            yield key, value


def _changes(case: Case) -> Iterator[tuple[str, Case]]:
    zero = case.config.get(ZERO)
    stage = int(zero.get("stage", 0)) if isinstance(zero, dict) else 0  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] -- anything may be there
    if stage:
        yield f"{ZERO}.reduce_bucket_size: {_SMALL_BUCKET}", _with(case, reduce_bucket_size=_SMALL_BUCKET)
    smaller = list(_smaller_batches(case))
    yield from smaller
    again = replace(case, model=replace(case.model, usage=replace(case.model.usage, checkpointing=True)))
    if not case.model.usage.checkpointing:
        yield "activation checkpointing in the script", again
    for higher in (each for each in _STAGES if each > stage):
        yield f"{ZERO}.stage: {higher}", _with(case, stage=higher)
    offload = {"stage": max(stage, 2), "offload_optimizer": {"device": "cpu"}}
    yield f"{ZERO}.stage: {max(stage, 2)} with offload_optimizer: {{device: cpu}}", _with(case, **offload)
    words, least = smaller[-1] if smaller else ("", case)
    least = replace(least, model=again.model)
    together = ", ".join(part for part in (words, "activation checkpointing in the script") if part)
    yield together, least
    yield f"{together}, {ZERO}.stage: 3", _with(least, stage=3)
    yield (
        f"{together}, {ZERO}.stage: 3 with offload_optimizer: {{device: cpu}}",
        _with(least, **{**offload, "stage": 3}),
    )


def _smaller_batches(case: Case) -> Iterator[tuple[str, Case]]:
    micro, accumulation = case.micro, case.accumulation
    while micro % 2 == 0:
        micro, accumulation = micro // 2, accumulation * 2
        config = copy.deepcopy(dict(case.config))
        config.pop(TRAIN, None)
        config |= {MICRO: micro, ACCUMULATION: accumulation}
        yield (
            f"{MICRO}: {micro} with {ACCUMULATION}: {accumulation}",
            replace(case, config=config, micro=micro, accumulation=accumulation),
        )


def _with(case: Case, **zero: Any) -> Case:
    section = case.config.get(ZERO)
    given: dict[str, Any] = dict(section) if isinstance(section, dict) else {}  # pyright: ignore[reportUnknownArgumentType] -- anything may be there
    return replace(case, config={**case.config, ZERO: {**given, **zero}})
