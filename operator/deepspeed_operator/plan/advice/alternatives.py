"""Which change of the configuration makes training faster, or lets it fit: the same model, ranks and network."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from deepspeed_operator.api.facts import Quantization
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.advice import loses_gradients
from deepspeed_operator.dsconfig.batch import ACCUMULATION
from deepspeed_operator.dsconfig.judgement import JudgementContext, validate
from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from deepspeed_operator.dsconfig.setup import ZERO, Setup, ZeroStage
from deepspeed_operator.dsconfig.wrong_results import WRONG_RESULTS
from deepspeed_operator.job.provenance import Fact
from deepspeed_operator.plan.advice.candidates import (
    Change,
    changed,
    changes,
    divisions,
    with_offloads,
    with_scripts,
)
from deepspeed_operator.plan.engine.gathers import computed_again
from deepspeed_operator.plan.engine.partitioning import runs
from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.memory.peaks import Memory, memory
from deepspeed_operator.plan.model.architecture import Model
from deepspeed_operator.plan.time.costs import Costs
from deepspeed_operator.plan.time.step_time import StepTime, step_time, with_bound
from deepspeed_operator.plan.traffic.communication import Traffic, communication

# A smaller gain is within what predictions get wrong, 9 % at the median: docs/plan.md.
WORTHWHILE: Final = 1.1
# What this version would train wrongly is offered only where it is so already.
_WRONG: Final = {row.code for row in WRONG_RESULTS}
# What one more key must gain over the same change without it: it costs a user some thought.
_FOR_ANOTHER_KEY: Final = 1.03
# Share of a step from which what the GPU waits for Python is its limit.
_LIMITS: Final = 0.1
_MOST_MICRO: Final = 1024


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What stays the same in all alternatives; `capacity` is a GPU's memory in bytes, `facts` what times come from.

    `timed`: whether `costs` are of these ranks' device; of another, nothing is known of their times.
    """

    model: Model
    world: int
    nodes: int
    version: str
    costs: Costs
    capacity: int | None = None
    facts: tuple[Fact, ...] = ()
    parallelism: ParallelDegrees = field(default_factory=ParallelDegrees)
    timed: bool = True

    @property
    def slots(self) -> int:
        return self.world // self.nodes


@dataclass(frozen=True, slots=True)
class Plan:
    """What one configuration costs."""

    setup: Setup
    micro: int
    accumulation: int
    traffic: Traffic
    memory: Memory
    time: StepTime | None

    @property
    def samples(self) -> int:
        """Samples of a step, over all ranks."""
        return self.micro * self.accumulation * self.traffic.ranks

    @property
    def samples_per_second(self) -> float | None:
        return self.samples / self.time.seconds if self.time and self.time.seconds else None


@dataclass(frozen=True, slots=True)
class Alternative:
    """`gain`: how many times the samples per second of now; None where one of the two is not known."""

    change: Change
    plan: Plan
    gain: float | None


def plan_of(config: Mapping[str, Any], micro: int, accumulation: int, around: Circumstances) -> Plan:
    """Return what a configuration costs."""
    setup = setup_of(config, around.world, around.version, around.parallelism)
    model, slots = around.model, around.slots
    traffic = communication(setup, model, accumulation, micro=micro, slots=slots)
    time = None
    if around.timed:
        time = step_time(setup, model, traffic, around.costs, micro=micro, accumulation=accumulation)
    if time is not None and setup.stage == ZeroStage.PARAMETERS:
        for again in computed_again(model)[1:]:
            less = communication(setup, model, accumulation, micro=micro, slots=slots, again=again)
            sooner = step_time(setup, model, less, around.costs, micro=micro, accumulation=accumulation)
            time = with_bound(time, sooner) if sooner is not None else time
    return Plan(setup, micro, accumulation, traffic, memory(setup, model, micro, accumulation), time)


@dataclass(frozen=True, slots=True)
class Advice:
    """`alternatives` as advise() returns them; `uncounted`: what makes the time of each change that fits a lower bound.

    It is empty where the time of one is known, where nothing else fits, and where no time is known at all.
    """

    alternatives: tuple[Alternative, ...]
    uncounted: tuple[str, ...]


def advise(
    config: Mapping[str, Any], now: Plan, around: Circumstances, among: Iterable[Change] | None = None
) -> list[Alternative]:
    """Return worthwhile changes that fit, the fastest first, those that keep the global batch before the others.

    Where the configuration itself does not fit, every change that does is worthwhile; where none does, the first that
    divides the model among the GPUs of a node, of which neither memory nor time is more than a lower bound. A time
    that is one is no advice where there is a choice: what it leaves out may be more than it gains.
    """
    return list(advice(config, now, around, among).alternatives)


def advice(
    config: Mapping[str, Any], now: Plan, around: Circumstances, among: Iterable[Change] | None = None
) -> Advice:
    """Return what advise() does, and what keeps changes from being compared."""
    fits = not too_large(now, around)
    sizes = (now.micro, now.accumulation)
    every = among is None
    if among is None:
        among = (
            *changes(now.setup, *sizes, around.slots, around.costs.half),
            *with_scripts(now.setup, around.model, *sizes, around.slots),
        )
    looked_at = list(_looked_at(config, now, around, among))
    found = _best(config, looked_at, around, fits=fits)
    if every and not fits and all(each.change.numeric for each in found):
        last = list(_looked_at(config, now, around, with_offloads(now.setup, around.model, *sizes)))
        found += _best(config, last, around, fits=fits)
    if every and not fits and not found:
        found = tuple(islice(_divided(config, now, around), 1))
    return Advice(found, () if found else _uncounted(looked_at))


def _looked_at(
    config: Mapping[str, Any], now: Plan, around: Circumstances, among: Iterable[Change]
) -> Iterator[Alternative]:
    """Yield each change with what it comes to, but those that are too large."""
    for change in among:
        plan = _changed_plan(config, change, around)
        if not too_large(plan, around):
            yield Alternative(change, plan, _gain(plan, now))


def _changed_plan(config: Mapping[str, Any], change: Change, around: Circumstances) -> Plan:
    used = replace(around, model=change.script.used(around.model))
    return plan_of(changed(config, change), change.micro, change.accumulation, used)


def _best(
    config: Mapping[str, Any], looked_at: Sequence[Alternative], around: Circumstances, *, fits: bool
) -> tuple[Alternative, ...]:
    worthwhile = [each for each in looked_at if _is_worthwhile(each, fits=fits)]
    ranked = sorted(worthwhile, key=_rank)
    return tuple(each for each in _plainest(ranked) if _is_accepted(config, each.change, around))


def _divided(config: Mapping[str, Any], now: Plan, around: Circumstances) -> Iterator[Alternative]:
    """Yield what may fit by dividing the model inside the node, where nothing else does; no gain is known of it."""
    for change in divisions(now.setup, around.model, now.micro, now.accumulation, around.slots):
        found = alternative(config, change, now, around)
        if found is not None and not too_large(found.plan, around):
            yield replace(found, gain=None)


def _is_worthwhile(each: Alternative, *, fits: bool) -> bool:
    return each.gain is not None and each.gain >= WORTHWHILE if fits else not each.change.grows


def _uncounted(looked_at: Sequence[Alternative]) -> tuple[str, ...]:
    """Return what all of the times leave out, else what any of them does; nothing where one is whole."""
    left_out = [each.plan.time.unproven for each in looked_at if each.plan.time is not None]
    if not left_out or not all(left_out):
        return ()
    anywhere = dict.fromkeys(name for names in left_out for name in names)
    return tuple(name for name in anywhere if all(name in names for names in left_out)) or tuple(anywhere)


def stages(config: Mapping[str, Any], now: Plan, around: Circumstances) -> Iterator[Plan]:
    """Yield what each stage costs that DeepSpeed accepts, with all else as it is."""
    for stage in range(4):
        change = Change({f"{ZERO}.stage": stage}, now.micro, now.accumulation)
        if stage == now.setup.stage:
            yield now
        elif _is_accepted(config, change, around):
            yield plan_of(changed(config, change), now.micro, now.accumulation, around)


@dataclass(frozen=True, slots=True)
class Speedups:
    """Ratios of samples a second: `accumulation`, stage 0 with it to stage 0 without; `stage`, this stage to stage 0,
    both with it; `both`, their product: this to stage 0 without. The table of docs/gpu.md has the same.
    """

    accumulation: float
    stage: float
    both: float
    samples_before: int


def shares(config: Mapping[str, Any], now: Plan, around: Circumstances) -> Speedups | None:
    """Return what accumulation and ZeRO each do; None where only one is used, or a time is not known."""
    if now.setup.stage == ZeroStage.DISABLED or now.accumulation == 1:
        return None

    def rate(stage: int, accumulation: int) -> float | None:
        change = Change({f"{ZERO}.stage": stage, ACCUMULATION: accumulation}, now.micro, accumulation)
        plan = plan_of(changed(config, change), now.micro, accumulation, around)
        return None if plan.time is None or plan.time.sign else plan.samples_per_second

    plain, accumulated = rate(0, 1), rate(0, now.accumulation)
    both = rate(now.setup.stage, now.accumulation)
    if plain is None or accumulated is None or both is None:
        return None
    return Speedups(accumulated / plain, both / accumulated, both / plain, now.samples // now.accumulation)


def advise_numbers(now: Plan) -> Change | None:
    """Return fp32 sums of gradients where bf16 would lose much of them; they gain no time, only numbers."""
    if not loses_gradients(now.setup, now.accumulation):
        return None
    lost = f"bf16 gradients of {now.accumulation} micro steps are summed in bf16, which has 8 bits of precision"
    return Change({"data_types.grad_accum_dtype": "fp32"}, now.micro, now.accumulation, (lost,))


def alternative(config: Mapping[str, Any], change: Change, now: Plan, around: Circumstances) -> Alternative | None:
    """Return what a change comes to, None where DeepSpeed would not accept it."""
    if not _is_accepted(config, change, around):
        return None
    plan = _changed_plan(config, change, around)
    return Alternative(change, plan, _gain(plan, now))


def too_large(plan: Plan, around: Circumstances) -> bool:
    """Whether a plan needs more than a GPU's memory."""
    return around.capacity is not None and plan.memory.needed > around.capacity


def free_micro_batch(plan: Plan, around: Circumstances) -> int | None:
    """Return the largest micro batch that fits and whose step is hardly longer; None where the host is not the limit.

    Its samples are computed while the GPU would wait for the host.
    """
    now = plan.time
    if now is None or now.host < _LIMITS * now.seconds:
        return None

    def costs_time(micro: int) -> bool:
        setup, accumulation = plan.setup, plan.accumulation
        time = step_time(setup, around.model, plan.traffic, around.costs, micro=micro, accumulation=accumulation)
        larger = replace(plan, memory=memory(setup, around.model, micro, accumulation))
        return time is None or time.seconds > WORTHWHILE * now.seconds or too_large(larger, around)

    free = plan.micro + bisect_left(range(plan.micro + 1, _MOST_MICRO), True, key=costs_time)
    return free if free > plan.micro else None


def _gain(plan: Plan, now: Plan) -> float | None:
    before, after = now.time, plan.time
    if before is None or not before.seconds or after is None or not after.least or after.unproven:
        return None
    # Of what may be hidden, as much in the one as in the other: nothing, or all of it.
    sooner = min(before.seconds / after.seconds, before.least / after.least)
    return plan.samples / now.samples * sooner


def _rank(alternative: Alternative) -> tuple[bool, bool, float, int]:
    gain = alternative.gain
    return alternative.change.grows, gain is None, -(gain or 0), alternative.change.size


def _plainest(ranked: Sequence[Alternative]) -> Iterator[Alternative]:
    """Leave out each that another makes needless: with fewer keys and not much slower, or as plain and faster."""
    for each in ranked:
        others = (other for other in ranked if other is not each and other.change.grows == each.change.grows)
        if not any(_is_needless(each, other) for other in others):
            yield each


def _is_needless(each: Alternative, other: Alternative) -> bool:
    # What needs less memory has its use; but a smaller micro batch computes slower, which only a calibration foresees.
    if other.plan.memory.needed > each.plan.memory.needed and other.plan.micro <= each.plan.micro:
        return False
    # Numbers that are rounded more, or frozen otherwise, are no better way to the same.
    if other.change.numeric and not each.change.numeric:
        return False
    keys = other.change.size - each.change.size
    if each.gain is None or other.gain is None:
        return other.gain is not None or (each.gain is None and keys < 0)
    return other.gain * (_FOR_ANOTHER_KEY if keys < 0 else 1) > each.gain and keys <= 0


def _is_accepted(config: Mapping[str, Any], change: Change, around: Circumstances) -> bool:
    proposed = changed(config, change)
    context = JudgementContext(around.world, around.version, parallelism=around.parallelism)
    stage, stored = object_at(proposed, ZERO).get("stage"), change.script.quantization
    # Adapters beside weights that bitsandbytes holds in 8 bits train wrongly there: its issue 1451.
    if stage == ZeroStage.PARAMETERS and stored is Quantization.INT8:
        return False
    if not runs(around.model, proposed):
        return False
    verdict = validate(proposed, context)
    if verdict.refused:
        return False
    wrong = {note.code for note in verdict.notes} & _WRONG
    return not wrong or wrong <= {note.code for note in validate(config, context).notes}
