"""What `dsjob plan` found, for people and programs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deepspeed_operator.api.status import World
from deepspeed_operator.cli.paint import painted
from deepspeed_operator.plan.advice import Alternative, Circumstances, Plan
from deepspeed_operator.plan.fit import Fit, MemoryFit, fit_of
from deepspeed_operator.plan.model import Fact

_GB: Final = 10**9
_GIB: Final = 2**30
_BAR: Final = 24
_MOST: Final = 6


@dataclass(frozen=True, slots=True)
class Planned:
    """One job or configuration."""

    name: str
    world: World
    around: Circumstances
    now: Plan
    alternatives: tuple[Alternative, ...]


def lines(planned: Planned) -> Iterator[str]:
    """Yield the lines for people."""
    now, world = planned.now, planned.world
    ranks = f"{world.nodes} × {world.slots_per_node} ranks, DeepSpeed {planned.around.version}"
    batch = f"micro batch {now.micro}, accumulation {now.accumulation}, {now.samples} samples a step"
    yield f"{painted(planned.name, bold=True)}: {ranks}, ZeRO stage {now.setup.stage}, {batch}"
    yield from _table("Model", [(fact.name, _written(fact), fact.source.value) for fact in planned.around.model.facts])
    yield from _traffic_lines(now)
    yield from _memory_lines(planned)
    yield from _time_lines(planned)


def record(planned: Planned) -> dict[str, Any]:
    """Return the same for programs; bytes and seconds."""
    now, model = planned.now, planned.around.model
    return {
        "name": planned.name,
        "version": planned.around.version,
        "model": [{"name": fact.name, "value": fact.value, "source": fact.source.value} for fact in model.facts],
        "communication": {
            "terms": [{"collective": term.collective, "payload": term.payload} for term in now.traffic.terms],
            "wire": now.traffic.wire,
            "unproven": list(now.traffic.unproven),
        },
        "memory": _memory_record(planned),
        "step": {"seconds": now.time.seconds, "networkShare": now.time.share, "unproven": list(now.time.unproven)}
        if now.time
        else None,
        "alternatives": [
            {"change": dict(each.change.values), "gain": each.gain, "caveat": each.change.caveat or None}
            for each in planned.alternatives
        ],
    }


def _traffic_lines(now: Plan) -> Iterator[str]:
    rows = [(term.collective, _gb(term.payload), term.what) for term in now.traffic.terms]
    total = f"{'≥ ' if now.traffic.unproven else ''}{_gb(now.traffic.wire)}"
    yield from _table("Traffic of a step", [*rows, ("on each GPU's link", total, "each way")])
    if now.traffic.unproven:
        yield f"  ≥: not counted with {', '.join(now.traffic.unproven)}"


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


def _memory_lines(planned: Planned) -> Iterator[str]:
    memory, fit = planned.now.memory, _fit(planned)
    phases = [(phase.name.value, _gib(phase.size), f"most: {phase.largest.what}") for phase in memory.phases]
    yield from _table("Memory of a GPU", phases)
    rows = [*((item.what, _gib(item.size), "") for item in (*memory.items, memory.outside))]
    yield from _table(f"In the {memory.peak.name}", [*rows, ("together", _gib(memory.needed), "")])
    if fit is not None:
        words = {Fit.YES: painted("yes", "green"), Fit.NO: painted("no", "red"), Fit.UNKNOWN: "unknown"}[fit.fit]
        yield f"  fits into {_gib(fit.capacity)}: {words}{': ' if fit.open else ''}{'; '.join(fit.open)}"


def _fit(planned: Planned) -> MemoryFit | None:
    now, capacity = planned.now, planned.around.capacity
    return fit_of(now.setup, planned.around.model, now.micro, now.accumulation, capacity) if capacity else None


def _time_lines(planned: Planned) -> Iterator[str]:
    time, rate = planned.now.time, planned.now.samples_per_second
    if time is None or rate is None:
        link = "--network" if planned.world.nodes > 1 else "--interconnect"
        yield f"Time of a step: unknown without --micro-step and {link}"
        return
    at_least = "≥ " if time.unproven else ""
    yield f"Time of a step: {at_least}{time.seconds:.3g} s, {rate:.3g} samples/s (not calibrated; no overlap assumed)"
    filled = round(time.share * _BAR)
    yield f"  network {'█' * filled}{'·' * (_BAR - filled)} {time.share:.0%}"
    if time.unproven:
        yield f"  ≥: without {', '.join(time.unproven)}"
    yield "Faster" if planned.alternatives else "Faster: nothing that is known to be, among stages 0 to 2"
    for number, each in enumerate(planned.alternatives[:_MOST], 1):
        change = ", ".join(f"{path}: {json.dumps(value)}" for path, value in each.change.values.items())
        caveat = f"; {each.change.caveat}" if each.change.caveat else ""
        yield f"  {number}. {painted(f'×{each.gain:.2f}', 'green')}  {change}{caveat}"


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
    return f"{size / _GIB:,.2f} GiB"
