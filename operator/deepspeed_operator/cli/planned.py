"""What `dsjob plan` finds of one job or configuration."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from deepspeed_operator.api.status import World
from deepspeed_operator.dsconfig.batch import ACCUMULATION, MICRO, TRAIN
from deepspeed_operator.job.gpus import Gpus
from deepspeed_operator.job.provenance import Fact
from deepspeed_operator.plan.advice.alternatives import (
    Advice,
    Alternative,
    Circumstances,
    Plan,
    Speedups,
    advice,
    advise_numbers,
    alternative,
    plan_of,
    shares,
    stages,
    too_large,
)
from deepspeed_operator.plan.advice.candidates import Change, changed
from deepspeed_operator.plan.advice.smallest_change import Remedy, smallest_change
from deepspeed_operator.plan.memory.case import Case, Missing, plan_memory
from deepspeed_operator.plan.memory.fit import ERROR, Fit, MemoryFit, is_whole
from deepspeed_operator.plan.memory.host import host_memory
from deepspeed_operator.plan.memory.sizes import MemoryItem
from deepspeed_operator.plan.model.architecture import Model


@dataclass(frozen=True, slots=True)
class Job:
    """What is planned, and for what: the configuration with its batch sizes, and where it runs.

    `version`: the DeepSpeed that is declared, where one is; `gpus`: whose memory is known, `device`: by what name the
    ranks' GPU goes; `limit`: bytes that the trainer container may use, None where it is not limited; `is_frameworks`:
    whether a framework's arguments decide the batch sizes; `undecided`: the sections whose precision is assumed.
    `peak`: what a GPU computes in 16 bits by its data sheet, a second; None where there is none.
    """

    index: int
    name: str
    config: Mapping[str, Any]
    micro: int
    accumulation: int
    world: World
    around: Circumstances
    facts: tuple[Fact, ...]
    version: str | None
    gpus: Gpus | None
    device: str
    limit: int | None = None
    is_frameworks: bool = False
    undecided: tuple[str, ...] = ()
    peak: float | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A plan, whether a GPU is large enough for it (None: its memory is not known), and what its pod needs."""

    plan: Plan
    fit: MemoryFit | None
    pod: tuple[MemoryItem, ...]

    @property
    def fits(self) -> Fit:
        return self.fit.fit if self.fit is not None else Fit.UNKNOWN

    @property
    def may_fit(self) -> bool:
        """Whether it fits for sure, or for all that is counted of it."""
        if self.fit is None or self.fits is Fit.YES:
            return True
        return self.fits is Fit.UNKNOWN and self.plan.memory.needed * (1 - ERROR) <= self.fit.capacity

    @property
    def pod_size(self) -> float:
        """Bytes that a pod needs at least."""
        return sum(item.size for item in self.pod)


@dataclass(frozen=True, slots=True)
class Offer:
    """A change that --apply writes; `gain` as an alternative has it."""

    change: Change
    gain: float | None
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Answer:
    """What to train with: `offer`, None for what is written; `micro_batches`: the same with other ones."""

    offer: Offer | None
    estimate: Estimate
    micro_batches: tuple[Estimate, ...]


_MICRO_BATCHES: Final = (1, 2, 4, 8)


@dataclass(frozen=True)
class Planned:
    """A job with all that is said of it."""

    job: Job

    @cached_property
    def now(self) -> Estimate:
        return self._estimate(plan_of(self.job.config, self.job.micro, self.job.accumulation, self.job.around))

    @cached_property
    def stages(self) -> tuple[Estimate, ...]:
        return tuple(self._estimate(plan) for plan in stages(self.job.config, self.now.plan, self.job.around))

    @cached_property
    def answer(self) -> "Answer":
        """The fastest change that fits and lets the model learn the same, else what is written."""
        chosen = next((each for each in self.alternatives if self._answers(each)), None)
        now = self.now
        if chosen is None:
            return Answer(None, now, tuple(self._micro_batches(Change({}, now.plan.micro, now.plan.accumulation))))
        return Answer(chosen, chosen.estimate, tuple(self._micro_batches(chosen.change)))

    def _answers(self, offer: Offer) -> bool:
        estimate, change = offer.estimate, offer.change
        if change.grows or estimate.pod_size > self.largest_pod or not estimate.may_fit:
            return False
        if self.is_too_large:
            return True
        return (
            offer.gain is not None and not change.numeric and (estimate.fits is Fit.YES or self.now.fits is not Fit.YES)
        )

    def _micro_batches(self, change: Change) -> Iterator[Estimate]:
        """Yield the same with other micro batches, at the same global batch where that divides it."""
        samples, around = change.micro * change.accumulation, self.job.around
        model = change.script.used(around.model)
        config = {key: value for key, value in changed(self.job.config, change).items() if key != TRAIN}
        for micro in sorted({*_MICRO_BATCHES, change.micro}):
            steps = max(1, samples // micro)
            sizes = {MICRO: micro, ACCUMULATION: steps}
            yield self._estimate(plan_of({**config, **sizes}, micro, steps, replace(around, model=model)), model)

    @cached_property
    def alternatives(self) -> tuple[Offer, ...]:
        """What is faster, or fits: first those that keep the global batch, in the pod's memory, and fit for sure."""
        found = [self._offer(each) for each in self._advice.alternatives]
        if not self.is_too_large:
            found = [each for each in found if not any(self._spares(each, other) for other in found)]
        return tuple(sorted(found, key=self._doubts))

    def _spares(self, offer: Offer, other: Offer) -> bool:
        """Whether a change of the configuration alone is as fast as one of the script, and fits as surely."""
        if not offer.change.script.words or other.change.script.words or other.change.numeric:
            return False
        slower = offer.gain is not None and other.gain is not None and other.gain >= offer.gain
        return slower and self._doubts(other) <= self._doubts(offer)

    @cached_property
    def numbers(self) -> Offer | None:
        """What keeps precision, whatever it costs."""
        change = advise_numbers(self.now.plan)
        found = alternative(self.job.config, change, self.now.plan, self.job.around) if change is not None else None
        return self._offer(found) if found is not None else None

    @cached_property
    def smallest(self) -> Offer | None:
        """The smallest change that fits, where it is one of the configuration alone."""
        values = self.remedy.values if self.remedy is not None else None
        if values is None:
            return None
        now = self.now.plan
        sizes = (int(values.get(MICRO, now.micro)), int(values.get(ACCUMULATION, now.accumulation)))
        found = alternative(self.job.config, Change(values, *sizes), now, self.job.around)
        return self._offer(found) if found is not None else None

    @cached_property
    def offers(self) -> tuple[Offer, ...]:
        """All that --apply knows, by its number."""
        further = [each for each in (self.numbers, self.smallest) if each is not None]
        return (*self.alternatives, *(each for each in further if each not in self.alternatives))

    def number_of(self, offer: Offer | None) -> int | None:
        """Return the number by which --apply knows an offer."""
        return self.offers.index(offer) + 1 if offer is not None else None

    @property
    def uncounted(self) -> tuple[str, ...]:
        """What keeps each change from being compared."""
        return self._advice.uncounted

    @cached_property
    def shares(self) -> Speedups | None:
        return shares(self.job.config, self.now.plan, self.job.around)

    @property
    def is_too_large(self) -> bool:
        return too_large(self.now.plan, self.job.around)

    @cached_property
    def remedy(self) -> Remedy | None:
        """What `dsjob validate` names where it is for sure that a GPU is too small."""
        fit = self.now.fit
        return (
            smallest_change(self._case(self.now.plan), fit.capacity) if fit is not None and self.is_too_large else None
        )

    @property
    def largest_pod(self) -> float:
        """Bytes that a pod may be predicted to need: beyond, the kernel would end it, as `dsjob validate` says, too."""
        return self.job.limit / (1 - ERROR) if self.job.limit is not None else math.inf

    @property
    def counts_all_memory(self) -> bool:
        return is_whole(self.job.around.model)

    @cached_property
    def _advice(self) -> Advice:
        return advice(self.job.config, self.now.plan, self.job.around)

    def _doubts(self, offer: Offer) -> tuple[bool, bool, bool]:
        estimate = offer.estimate
        return offer.change.grows, estimate.pod_size > self.largest_pod, estimate.fits is not Fit.YES

    def _offer(self, found: Alternative) -> Offer:
        model = found.change.script.used(self.job.around.model)
        return Offer(found.change, found.gain, self._estimate(found.plan, model))

    def _estimate(self, plan: Plan, model: Model | None = None) -> Estimate:
        model = model or self.job.around.model
        fit = plan_memory(replace(self._case(plan), model=model), self.job.gpus)
        slots = self.job.world.slots_per_node
        pod = host_memory(plan.setup, model, plan.micro, plan.accumulation, slots)
        return Estimate(plan, None if isinstance(fit, Missing) else fit, pod)

    def _case(self, plan: Plan) -> Case:
        around = self.job.around
        config = plan.setup.config
        return Case(
            config,
            around.model,
            plan.micro,
            plan.accumulation,
            around.world,
            around.version,
            around.parallelism,
            self.job.undecided,
        )
