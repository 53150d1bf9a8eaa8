"""What `dsjob plan` found, for people and programs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deepspeed_operator.api.status import World
from deepspeed_operator.cli.paint import painted
from deepspeed_operator.plan.advice import Alternative, Circumstances, Plan
from deepspeed_operator.plan.memory import UNCOUNTED, Fit
from deepspeed_operator.plan.model import Source

_GB: Final = 10**9
_GIB: Final = 2**30
_BAR: Final = 24
_MOST: Final = 6
_ASSUMED: Final = "all parameters are trained"
# With it, stage 3 gathers again for the second forward pass.
_ASSUMPTIONS: Final = (("trained parameters", "all"), ("activation checkpointing", "none"))


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
    facts = [(fact.name, f"{fact.value:,}", fact.source.value) for fact in planned.around.model.facts]
    yield from _table("Model", [*facts, *((name, value, Source.ASSUMED.value) for name, value in _ASSUMPTIONS)])
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
        "memory": {
            "terms": [{"name": item.what, "bytes": item.size} for item in now.memory.items],
            "atLeast": now.memory.size,
            "assumed": _ASSUMED,
            "uncounted": list(UNCOUNTED),
            "fit": _fit(planned).value,
        },
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


def _memory_lines(planned: Planned) -> Iterator[str]:
    items = planned.now.memory.items
    rows = [(item.what, _gib(item.size), "") for item in items]
    yield from _table("Memory of a GPU", [*rows, ("together", f"≥ {_gib(planned.now.memory.size)}", "")])
    yield f"  ≥: without {', '.join(UNCOUNTED)}"
    if planned.around.capacity is not None:
        yield f"  fits into {_gib(planned.around.capacity)}: {_verdict(planned)}"


def _fit(planned: Planned) -> Fit:
    capacity = planned.around.capacity
    return planned.now.memory.fit(capacity) if capacity is not None else Fit.UNKNOWN


def _verdict(planned: Planned) -> str:
    fit, capacity = _fit(planned), planned.around.capacity
    if fit is Fit.NO:
        return painted("no", "red")
    if capacity is not None and planned.now.memory.size > capacity:
        return f"unknown; no, if {_ASSUMED}"
    return "unknown, as not everything is counted"


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


def _gb(size: float) -> str:
    return f"{size / _GB:,.2f} GB"


def _gib(size: float) -> str:
    return f"{size / _GIB:,.2f} GiB"
