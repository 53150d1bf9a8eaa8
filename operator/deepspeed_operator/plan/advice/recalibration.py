"""A plan corrected by what its job's first steps took: what the network's part is, and what would be faster.

The all-reduce that was measured tells what the counted traffic takes; measured_step.py says of the rest how much is
the host's and the GPU's. On a device that no data sheet here knows, all of it is computing, and only such changes are
looked at as make none of the unknown parts larger.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from deepspeed_operator.api.plan_status import MAX_MFU_PERCENT
from deepspeed_operator.api.status import Batch
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.batch import ACCUMULATION, AUTO, MICRO
from deepspeed_operator.dsconfig.setup import Setup, ZeroStage
from deepspeed_operator.job.data_sheets import Device, device_named
from deepspeed_operator.plan.advice.alternatives import (
    Alternative,
    Circumstances,
    Plan,
    advise,
    free_micro_batch,
    plan_of,
)
from deepspeed_operator.plan.advice.candidates import SINGLE, Change, changed, changes
from deepspeed_operator.plan.advice.measured_step import split
from deepspeed_operator.plan.engine.groups import groups_of
from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.memory.case import Case, Missing
from deepspeed_operator.plan.memory.fit import ERROR
from deepspeed_operator.plan.time.costs import Costs, Work, assumed, flops
from deepspeed_operator.plan.time.links import Bandwidth, Links, Sweep
from deepspeed_operator.plan.time.measured import AllReduce, Measured
from deepspeed_operator.plan.time.step_time import overlaps, reductions, updated
from deepspeed_operator.plan.traffic.collectives import ALL_REDUCE

# What an alternative must gain to be worth a word in the middle of a run.
FASTER: Final = 1.3
# Several times the bytes take at least so many times as long, unless something else held up the fewer ones.
_GROWS: Final = 1.2


@dataclass(frozen=True, slots=True)
class Corrected:
    """`predicted`: seconds of a step; `network`: seconds that its traffic takes; `peak`: bytes, predicted.

    `best`: the fastest alternative, where it is more than FASTER times as fast; `needed`: bytes of a GPU for it, None
    where memory was not measured. `bus_bandwidth`: bytes a second, measured by the ranks, else by the preflight.
    `mfu`: the model's FLOPs of a second, as a share of those of all GPUs by their data sheet; None where the GPU or the
    tokens of a sample are nobody's word.
    `remarks`: what is left out, and why something is missing.
    """

    measured: Measured
    predicted: float | None = None
    network: float | None = None
    peak: int | None = None
    best: Alternative | None = None
    needed: int | None = None
    bus_bandwidth: float | None = None
    mfu: float | None = None
    remarks: tuple[str, ...] = ()


def as_run(config: Mapping[str, Any], batch: Batch | None, measured: Measured) -> tuple[dict[str, Any], Batch]:
    """Return precision and batch as the ranks have them, where configuration and job leave that to a framework."""
    filled = dict(config)
    for name in ("bf16", "fp16"):
        section = object_at(filled.get(name))
        if section.get("enabled") == AUTO:
            filled[name] = {**section, "enabled": measured.precision == name}
    known = batch or Batch()
    micro, accumulation = known.micro_per_gpu or measured.micro_batch, known.accumulation or measured.accumulation
    return filled, known.model_copy(update={"micro_per_gpu": micro, "accumulation": accumulation})


def correct_plan(case: Case | Missing, nodes: int, measured: Measured, preflight: float | None = None) -> Corrected:
    """Return what the first steps of a job on so many nodes tell beside its plan.

    `preflight`: bytes a second of bus bandwidth, of which the network's part is told if the ranks measured no
    all-reduce.
    """
    rate = measured.all_reduce.bus_bandwidth if measured.all_reduce is not None else preflight or None
    if isinstance(case, Missing):
        why = f"nothing is predicted: {case.path}: {case.why}"
        return Corrected(measured, bus_bandwidth=rate, remarks=(why,))
    if (other := _other(case, measured)) is not None:
        return Corrected(measured, bus_bandwidth=rate, remarks=(other,))
    device = device_named(measured.device, measured.device_memory)
    links = _links(case.setup, case.world // nodes, measured.all_reduce, device)
    if measured.all_reduce is None and rate is not None:
        links = measured_links(rate, nodes, device)
    around = _circumstances(case, nodes, links, device)
    now = plan_of(case.config, case.micro, case.accumulation, around)
    peak = now.memory.allocated(measured.device_memory) if measured.peak_memory is not None else None
    remarks = tuple(_remarks(case, now, measured, device, rate))
    mfu = _mfu(case, now, measured, device) if device is not None else None
    if mfu is not None and 100 * mfu > MAX_MFU_PERCENT:
        words = f"the FLOPs of spec.model are {mfu:.0f} times what the GPUs can do: the ranks train something smaller"
        remarks, mfu = (*remarks, words), None
    found = Corrected(measured, peak=peak, bus_bandwidth=rate, mfu=mfu, remarks=remarks)
    if now.time is None or (rate is None and now.traffic.terms):
        return found
    if device is not None and case.model.usage.sequence is not None:
        found = replace(found, predicted=now.time.seconds)
    found = replace(found, network=now.time.communication)
    parts = split(now, around, measured.step_seconds)
    if parts is None:
        words = "the traffic takes longer at the measured all-reduce than the whole step did: nothing is advised"
        return replace(found, remarks=(*found.remarks, words))
    time, costs = parts
    around = replace(around, costs=costs, capacity=_room(now, measured))
    now = replace(now, time=time)
    if (free := free_micro_batch(now, around)) is not None:
        words = f"the host is the limit: a larger micro batch is free until {free}"
        found = replace(found, remarks=(*found.remarks, words))
    best = next(iter(faster(case, now, around, known=device is not None)), None)
    if best is None or measured.peak_memory is None:
        return replace(found, best=best)
    more = measured.peak_memory / now.memory.allocated(measured.device_memory)
    needed = best.plan.memory.size * more + best.plan.memory.outside.size
    return replace(found, best=best, needed=round(needed))


def _mfu(case: Case, now: Plan, measured: Measured, device: Device) -> float | None:
    model, tokens = case.model, case.model.usage.sequence
    if tokens is None or model.assumes("sequenceLength"):
        return None
    peak = device.plain_flops if measured.precision == "fp32" else device.flops
    return now.samples * flops(model, tokens) / (case.world * peak * measured.step_seconds)


def _other(case: Case, measured: Measured) -> str | None:
    """Say in what the ranks do not run what the job says."""
    setup = case.setup
    precision = "bf16" if setup.bf16 else "fp16" if setup.fp16 else "fp32"
    pairs = {
        "ZeRO stage": (setup.stage, measured.stage),
        "micro batch": (case.micro, measured.micro_batch),
        "accumulation": (case.accumulation, measured.accumulation),
        "precision": (precision, measured.precision),
    }
    others = [f"{name} {found}, not {said}" for name, (said, found) in pairs.items() if found != said]
    return f"nothing is predicted, since the ranks run with {', '.join(others)}" if others else None


def _circumstances(case: Case, nodes: int, links: Links, device: Device | None) -> Circumstances:
    if device is not None:
        tokens = case.model.usage.sequence or 1
        costs = assumed(case.model, device, links, tokens=tokens, framework=case.framework)
    else:
        nothing = dict.fromkeys(Work, 0.0)
        # Any number does for a sample: it becomes what the measured step tells.
        costs = Costs(sample=1.0, reduction=nothing, update=nothing, gather=0.0, module=0.0, links=links, facts=())
    return Circumstances(case.model, case.world, nodes, case.version, costs, parallelism=case.parallelism)


def measured_links(rate: float, nodes: int, device: Device | None) -> Links:
    """Return what an all-reduce of all ranks tells: it is as slow as what is between nodes, if there are several."""
    inside = Bandwidth(device.interconnect) if device is not None else None
    return Links(inside, Bandwidth(rate)) if nodes > 1 else Links(Bandwidth(rate), None)


def _links(setup: Setup, slots: int, found: AllReduce | None, device: Device | None) -> Links:
    """What was measured is between nodes where data-parallel ranks are on several, else inside of one."""
    inside = Bandwidth(device.interconnect) if device is not None else None
    if found is None:
        return Links(inside, None)
    group = groups_of(setup, slots).data
    # All groups that share a node's network were measured at the same time.
    points = [(float(size), seconds / group.sharing) for size, seconds in found.points]
    sweep = Sweep(found.ranks, {ALL_REDUCE: _growing(points)})
    return Links(inside, sweep) if group.nodes > 1 else Links(sweep, None)


def _growing(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Leave out sizes that took as long as larger ones; of one size alone, all of its time is its bytes'."""
    kept = [max(points)]
    for size, seconds in sorted(points, reverse=True)[1:]:
        if seconds * _GROWS < kept[0][1]:
            kept.insert(0, (size, seconds))
    return tuple(kept) if len(kept) > 1 else ((0.0, 0.0), *kept)


def faster(case: Case, now: Plan, around: Circumstances, *, known: bool) -> list[Alternative]:
    """Return what is more than FASTER times as fast, the fastest first; `known`: the device has a data sheet here."""
    possible = changes(now.setup, now.micro, now.accumulation, around.slots, around.costs.half)
    among = [change for change in possible if _is_comparable(case, now, change, known=known)]
    return [each for each in advise(case.config, now, around, among) if (each.gain or 0) > FASTER]


def _is_comparable(case: Case, now: Plan, change: Change, *, known: bool) -> bool:
    """Whether what was measured tells enough of the changed configuration, and the model learns the same by it."""
    if change.grows or change.numeric or change.micro < now.micro:
        return False
    is_frameworks = AUTO in (case.config.get(MICRO), case.config.get(ACCUMULATION))
    if is_frameworks and (change.micro, change.accumulation) != (now.micro, now.accumulation):
        return False
    if known:
        return True
    if change.micro != now.micro or any("offload" in path or path == SINGLE for path in change.values):
        return False
    then = setup_of(changed(case.config, change), case.world, case.version, case.parallelism)
    less_work = reductions(then, change.accumulation) <= reductions(now.setup, now.accumulation)
    return (
        then.stage < ZeroStage.PARAMETERS and less_work and updated(then, case.model) <= updated(now.setup, case.model)
    )


def _room(now: Plan, measured: Measured) -> int | None:
    """Bytes that an alternative may need by its own prediction: as much less than a GPU has as this one needed more."""
    if measured.peak_memory is None or measured.device_memory is None:
        return None
    outside = now.memory.outside.size
    more = measured.peak_memory / now.memory.allocated(measured.device_memory) * (1 + ERROR)
    return max(now.memory.needed, round((measured.device_memory - outside) / more + outside))


def _remarks(case: Case, now: Plan, measured: Measured, device: Device | None, rate: float | None) -> Iterator[str]:
    model = case.model
    if measured.all_reduce is None and now.traffic.terms:
        known = "the network's part is by the preflight's" if rate else "nothing is known of the network"
        yield f"no all-reduce was measured, so {known}"
    if device is None:
        yield f"nothing is known here of the device{f' {measured.device}' if measured.device else ''}"
    elif model.usage.sequence is None:
        yield "spec.model.sequenceLength is not declared, so no step is predicted"
    elif model.assumes("sequenceLength"):
        yield f"sequenceLength {model.usage.sequence:,} is assumed"
    if overlaps(now.setup) and now.traffic.terms:
        yield "stage 3 sends while it computes: what of that costs no time is not known"
    if now.time is not None and now.time.caveat:
        yield f"the predicted step is {now.time.caveat}"
    if measured.peak_memory is not None and (model.shape is None or model.usage.sequence is None):
        yield "predictedPeakMemory is without activations: spec.model says no layers, widths or sequenceLength"
