"""How long a step takes: its computing, then its traffic over the slowest link. Nothing is assumed to overlap."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.plan.communication import REDUCE, Traffic

# Reduces to single roots do not fill a link both ways: so much longer than their bytes took over TCP between two H100s.
_REDUCES: Final = 1.3


@dataclass(frozen=True, slots=True)
class Speeds:
    """Declared or measured. `network` is a whole node's, as one ring crosses between nodes once; both one way.

    `micro_step` is the seconds of one forward and backward pass without communication.
    """

    interconnect: float | None = None
    network: float | None = None
    micro_step: float | None = None


@dataclass(frozen=True, slots=True)
class StepTime:
    compute: float
    communication: float
    unproven: tuple[str, ...]

    @property
    def seconds(self) -> float:
        return self.compute + self.communication

    @property
    def share(self) -> float:
        """The network's part of the step."""
        return self.communication / self.seconds if self.seconds else 0.0


def step_time(setup: Setup, traffic: Traffic, speeds: Speeds, accumulation: int, nodes: int) -> StepTime | None:
    """Return the time of a step, None where a speed that it depends on is not known."""
    bandwidth = speeds.network if nodes > 1 else speeds.interconnect
    if speeds.micro_step is None or (bandwidth is None and traffic.wire):
        return None
    reduces = sum(term.wire for term in traffic.terms if term.collective == REDUCE)
    communication = (traffic.wire + (_REDUCES - 1) * reduces) / bandwidth if bandwidth else 0.0
    unproven = (*traffic.unproven, *_unproven(setup, traffic, nodes))
    return StepTime(speeds.micro_step * accumulation, communication, unproven)


def _unproven(setup: Setup, traffic: Traffic, nodes: int) -> Iterator[str]:
    if setup.stage == 3:
        yield "stage 3's work for each module, whatever the network"
    if 1 < nodes < traffic.ranks:
        yield "several GPUs of a node on one network"
