"""Which change of the configuration makes training faster: the same model, the same ranks, the same network."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from deepspeed_operator.dsconfig.batch import ACCUMULATION, MICRO, TRAIN
from deepspeed_operator.dsconfig.setup import ZERO, Setup
from deepspeed_operator.plan.communication import Traffic, communication
from deepspeed_operator.plan.memory import Memory, memory
from deepspeed_operator.plan.model import Model
from deepspeed_operator.plan.reading import setup_of
from deepspeed_operator.plan.steptime import Speeds, StepTime, step_time

# Less than this is within what a model of bandwidths alone gets wrong.
_WORTHWHILE: Final = 1.1
_MORE_ACCUMULATION: Final = 4


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What stays the same in all alternatives; `capacity` is a GPU's memory in bytes."""

    model: Model
    world: int
    nodes: int
    version: str
    speeds: Speeds
    capacity: int | None = None


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
class Change:
    """Keys of ds_config by their path, and the values to write there."""

    values: Mapping[str, Any]
    caveat: str = ""


@dataclass(frozen=True, slots=True)
class Alternative:
    change: Change
    plan: Plan
    gain: float


def plan_of(config: Mapping[str, Any], micro: int, accumulation: int, around: Circumstances) -> Plan:
    """Return what a configuration costs."""
    setup = setup_of(config, around.world, around.version)
    traffic = communication(setup, around.model, accumulation)
    time = step_time(setup, traffic, around.speeds, accumulation, around.nodes)
    return Plan(setup, micro, accumulation, traffic, memory(setup, around.model, micro, accumulation), time)


def advise(config: Mapping[str, Any], now: Plan, around: Circumstances) -> list[Alternative]:
    """Return worthwhile changes that may fit, the fastest first, those that keep the global batch before the others.

    One that is a lower bound is no advice: what it leaves out may be more than it gains.
    """
    if now.samples_per_second is None:
        return []
    found: list[Alternative] = []
    for change in _changes(now):
        changed = _changed(config, change)
        plan = plan_of(changed, now.micro, int(change.values.get(ACCUMULATION, now.accumulation)), around)
        rate = plan.samples_per_second
        if rate is None or plan.time is None or plan.time.unproven or _too_large(plan, around):
            continue
        if rate / now.samples_per_second >= _WORTHWHILE:
            found.append(Alternative(change, plan, rate / now.samples_per_second))
    return sorted(found, key=lambda alternative: (bool(alternative.change.caveat), -alternative.gain))


def _too_large(plan: Plan, around: Circumstances) -> bool:
    return around.capacity is not None and plan.memory.needed > around.capacity


def _changes(now: Plan) -> Iterator[Change]:
    more = now.accumulation * _MORE_ACCUMULATION
    caveat = f"the global batch grows from {now.samples} to {now.samples * _MORE_ACCUMULATION} samples"
    for stage in range(3):
        here: dict[str, Any] = {} if stage == now.setup.stage else {f"{ZERO}.stage": stage}
        single = {f"{ZERO}.use_multi_rank_bucket_allreduce": False} if stage else {}
        for values in ({**here, **single}, here) if stage else (here,):
            if values:
                yield Change(values)
            yield Change({**values, ACCUMULATION: more}, caveat)


def _changed(config: Mapping[str, Any], change: Change) -> dict[str, Any]:
    changed = copy.deepcopy(dict(config))
    for path, value in change.values.items():
        *sections, key = path.split(".")
        section = changed
        for name in sections:
            section = section.setdefault(name, {})
        section[key] = value
    if ACCUMULATION in change.values and MICRO in changed:
        changed.pop(TRAIN, None)
    return changed
