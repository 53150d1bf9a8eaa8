"""What `dsjob plan` found, for people and programs."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from deepspeed_operator.api.status import World
from deepspeed_operator.cli.paint import painted
from deepspeed_operator.plan.advice import WORTHWHILE, Alternative, Circumstances, Plan, Shares, too_large
from deepspeed_operator.plan.changes import Change
from deepspeed_operator.plan.fit import Fit, MemoryFit, fit_of
from deepspeed_operator.plan.model import Fact, Source
from deepspeed_operator.plan.steptime import StepTime
from deepspeed_operator.plan.terms import Term
from deepspeed_operator.plan.units import GIB

_GB: Final = 10**9
_BAR: Final = 24
_MOST: Final = 6
_SMALL: Final = GIB // 20


@dataclass(frozen=True, slots=True)
class Planned:
    """One job or configuration, the `index`th of its file."""

    index: int
    name: str
    world: World
    around: Circumstances
    now: Plan
    stages: tuple[Plan, ...]
    alternatives: tuple[Alternative, ...]
    numbers: Change | None
    shares: Shares | None

    @property
    def facts(self) -> tuple[Fact, ...]:
        return (*self.around.model.facts, *self.around.facts)


def lines(planned: Planned) -> Iterator[str]:
    """Yield the lines for people."""
    now, world = planned.now, planned.world
    ranks = f"{world.nodes} × {world.slots_per_node} ranks, DeepSpeed {planned.around.version}"
    batch = f"micro batch {now.micro}, accumulation {now.accumulation}, {now.samples} samples a step"
    yield f"{painted(planned.name, bold=True)}: {ranks}, ZeRO stage {now.setup.stage}, {batch}"
    for source in Source:
        facts = [f"{fact.name} {_written(fact)}" for fact in planned.facts if fact.source is source]
        if facts:
            yield f"  {source.value}: {', '.join(facts)}"
    yield from _traffic_lines(planned)
    yield from _memory_lines(planned)
    yield from _time_lines(planned)
    yield from _stage_lines(planned)
    if planned.shares is not None:
        yield _share_line(planned.shares, now)
    yield from _advice_lines(planned)


def record(planned: Planned) -> dict[str, Any]:
    """Return the same for programs; bytes and seconds."""
    now = planned.now
    facts = [{"name": fact.name, "value": fact.value, "source": fact.source.value} for fact in planned.facts]
    return {
        "name": planned.name,
        "version": planned.around.version,
        "facts": facts,
        "communication": {
            "terms": [_term_record(term) for term in now.traffic.terms],
            "wire": now.traffic.wire,
            "betweenNodes": now.traffic.between_nodes,
            "unproven": list(now.traffic.unproven),
        },
        "memory": _memory_record(planned),
        "step": _time_record(now.time) if now.time else None,
        "samplesPerSecond": now.samples_per_second,
        "stages": [_stage_record(plan, planned.around) for plan in planned.stages],
        "alternatives": [
            {
                "change": dict(each.change.values),
                "gain": each.gain,
                "samplesPerSecond": each.plan.samples_per_second,
                "memory": each.plan.memory.needed,
                "caveat": each.change.caveat or None,
            }
            for each in planned.alternatives
        ],
        "shares": asdict(planned.shares) if planned.shares else None,
        "precision": {"change": dict(planned.numbers.values), "why": planned.numbers.caveat}
        if planned.numbers
        else None,
    }


def _term_record(term: Term) -> dict[str, Any]:
    return {
        "collective": term.collective,
        "payload": term.payload,
        "group": term.group.name,
        "ranks": term.group.ranks,
        "nodes": term.group.nodes,
    }


def _time_record(time: StepTime) -> dict[str, Any]:
    return {
        "seconds": time.seconds,
        "compute": time.compute,
        "work": time.work,
        "update": time.update,
        "communication": time.communication,
        "networkShare": time.share,
        "unproven": list(time.unproven),
    }


def _stage_record(plan: Plan, around: Circumstances) -> dict[str, Any]:
    fits = None if around.capacity is None else not too_large(plan, around)
    rate = plan.samples_per_second
    return {"stage": plan.setup.stage, "memory": plan.memory.needed, "fits": fits, "samplesPerSecond": rate}


def _memory_record(planned: Planned) -> dict[str, Any]:
    memory, fit = planned.now.memory, _fit(planned)
    phases = [
        {"phase": phase.name.value, "bytes": phase.size, "terms": {item.what: round(item.size) for item in phase.items}}
        for phase in memory.phases
    ]
    return {
        "phases": phases,
        "peak": memory.peak.name.value,
        "outside": round(memory.outside.size),
        "needed": memory.needed,
        "fit": fit.fit.value if fit else None,
        "open": list(fit.open) if fit else [],
    }


def _traffic_lines(planned: Planned) -> Iterator[str]:
    traffic = planned.now.traffic
    at_least = "≥ " if traffic.unproven else ""
    rows = [(term.collective, _gb(term.payload), f"{term.what} ({_where(term)})") for term in traffic.terms]
    rows.append(("on each GPU's link", at_least + _gb(traffic.wire), "each way"))
    if planned.world.nodes > 1:
        rows.append(("on each node's network", at_least + _gb(traffic.between_nodes), "each way"))
    yield from _table("Traffic of a step", rows)
    if traffic.unproven:
        yield f"  ≥: not counted with {', '.join(traffic.unproven)}"


def _where(term: Term) -> str:
    return f"{term.group.ranks} ranks, {'between nodes' if term.group.nodes > 1 else 'inside a node'}"


def _memory_lines(planned: Planned) -> Iterator[str]:
    memory, fit = planned.now.memory, _fit(planned)
    phases = ", ".join(f"{phase.name} {_gib(phase.size)}" for phase in memory.phases)
    yield f"Memory of a GPU: {_gib(memory.needed)}, most in the {memory.peak.name}"
    yield f"  peaks: {phases}"
    items = [item for item in (*memory.items, memory.outside) if item.size > _SMALL]
    yield f"  there: {', '.join(f'{item.what} {_gib(item.size)}' for item in items)}"
    if fit is not None:
        words = {Fit.YES: painted("yes", "green"), Fit.NO: painted("no", "red"), Fit.UNKNOWN: "unknown"}[fit.fit]
        yield f"  fits into {_gib(fit.capacity)}: {words}{': ' if fit.open else ''}{'; '.join(fit.open)}"


def _fit(planned: Planned) -> MemoryFit | None:
    now, capacity = planned.now, planned.around.capacity
    return fit_of(now.setup, planned.around.model, now.micro, now.accumulation, capacity) if capacity else None


def _time_lines(planned: Planned) -> Iterator[str]:
    time, rate = planned.now.time, planned.now.samples_per_second
    if time is None or rate is None:
        yield "Time of a step: unknown without --network, or a --calibration"
        return
    at_least = "≥ " if time.unproven else ""
    yield f"Time of a step: {at_least}{time.seconds:.3g} s, {rate:.3g} samples/s"
    parts = {
        "computing": time.compute,
        "network": time.communication,
        "optimizer": time.update,
        "ZeRO's own work": time.work,
    }
    width = max(map(len, parts))
    for name, seconds in parts.items():
        filled = round(seconds / time.seconds * _BAR)
        yield f"  {name:<{width}} {'█' * filled}{'·' * (_BAR - filled)} {seconds / time.seconds:4.0%}  {seconds:.3g} s"
    if time.unproven:
        yield f"  ≥: without {', '.join(time.unproven)}"


def _stage_lines(planned: Planned) -> Iterator[str]:
    """The question that is asked most: which stage for this model, this GPU and this network?"""
    yield "Which ZeRO stage, at this batch"
    fitting = [plan for plan in planned.stages if not too_large(plan, planned.around) and plan.time]
    proven = [plan for plan in fitting if plan.time and not plan.time.unproven]
    fastest = max(proven, key=lambda plan: plan.samples_per_second or 0, default=None)
    for plan in planned.stages:
        memory = _gib(plan.memory.needed)
        fits = "" if planned.around.capacity is None else "too large" if too_large(plan, planned.around) else "fits"
        rate = plan.samples_per_second
        at_least = "≤ " if plan.time and plan.time.unproven else ""
        speed = f"{at_least}{rate:.3g} samples/s, network {plan.time.share:.0%}" if rate and plan.time else ""
        here = ", now" if plan.setup.stage == planned.now.setup.stage else ""
        here += ", the fastest that fits" if plan is fastest and planned.around.capacity is not None else ""
        yield f"  {plan.setup.stage}  {memory:>11}  {fits:<9}  {speed}{here}".rstrip()


def _share_line(shares: Shares, now: Plan) -> str:
    return (
        f"Beside stage 0 without accumulation: ×{shares.both:.2f} samples/s; accumulation alone would do "
        f"×{shares.accumulation:.2f}, ZeRO alone ×{shares.stage:.2f} "
        f"(accumulation grew the global batch from {shares.samples_before} to {now.samples} samples)"
    )


def _advice_lines(planned: Planned) -> Iterator[str]:
    alternatives = planned.alternatives
    fits = not too_large(planned.now, planned.around)
    if not alternatives:
        yield (
            f"Nothing is predicted to be {WORTHWHILE - 1:.0%} faster" if fits else "Nothing that is known makes it fit"
        )
    else:
        yield "Faster" if fits else "What fits"
    yield from _alternatives(alternatives[:_MOST])
    if planned.numbers is not None:
        yield f"Precision: {_values(planned.numbers)}, since {planned.numbers.caveat}"


def _alternatives(alternatives: Iterable[Alternative]) -> Iterator[str]:
    for number, each in enumerate(alternatives, 1):
        gain = painted(f"×{each.gain:.2f}", "green") if each.gain is not None else "?"
        rate = each.plan.samples_per_second
        speed = f"{rate:.3g} samples/s, " if rate is not None and each.gain is not None else ""
        caveat = f" ({each.change.caveat})" if each.change.caveat else ""
        yield f"  {number}. {gain}  {speed}{_gib(each.plan.memory.needed)}  {_values(each.change)}{caveat}"


def _values(change: Change) -> str:
    return ", ".join(f"{path}: {json.dumps(value)}" for path, value in change.values.items())


def _table(title: str, rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    yield title
    first = max(len(row[0]) for row in rows)
    second = max(len(row[1]) for row in rows)
    for name, value, remark in rows:
        yield f"  {name:<{first}}  {value:>{second}}  {remark}".rstrip()


def _written(fact: Fact) -> str:
    return fact.value if isinstance(fact.value, str) else f"{fact.value:,}"


def _gb(size: float) -> str:
    return f"{size / _GB:,.2f} GB"


def _gib(size: float) -> str:
    return f"{size / GIB:,.1f} GiB"
