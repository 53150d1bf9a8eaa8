"""How long a collective takes: by a bandwidth, or by a sweep that was measured."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from deepspeed_operator.plan.traffic.collectives import ALL_REDUCE, REDUCE, Term

# Reduces to single roots do not fill a link both ways: so much longer than their bytes took over TCP between two H100s.
_REDUCES: Final = 1.3
# A collective that was not measured takes as long as its share of an all-reduce, but reduces to single roots as long as
# all of it: 0.9 to 1.1 between two H200s, by NVLink and by sockets.
_HALF: Final = 0.5


class Link(Protocol):
    """What connects the ranks of a group."""

    def seconds(self, term: Term) -> float:
        """Return how long all calls of a term take, one after the other."""
        ...


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes a second, each way: of one GPU inside a node, of a whole node between nodes."""

    rate: float
    latency: float = 0.0

    def seconds(self, term: Term) -> float:
        """Return the time that the bytes take, and the latency of each call."""
        sent = term.wire * term.group.sharing
        return term.calls * self.latency + sent * (_REDUCES if term.collective == REDUCE else 1) / self.rate


@dataclass(frozen=True)
class Sweep:
    """Seconds of each collective by its bytes, measured among `ranks`, each point once and in order of size."""

    ranks: int
    points: Mapping[str, Sequence[tuple[float, float]]]

    def seconds(self, term: Term) -> float:
        """Return what was measured at the size of one call, for each call."""
        if not term.payload:
            return 0.0  # stage 3 gathers none of a model whose parameters are all small
        share = ((term.group.ranks - 1) / term.group.ranks) / ((self.ranks - 1) / self.ranks)
        return term.calls * self._call(term.collective, term.payload / term.calls) * share * term.group.sharing

    def _call(self, collective: str, size: float) -> float:
        points = self.points.get(collective)
        if not points:
            return self._call(ALL_REDUCE, size) * (1 if collective == REDUCE else _HALF)
        # Beyond what was measured, seconds grow as between the last two sizes.
        right = min(max(1, bisect_left(points, (size, 0.0))), len(points) - 1)
        (smaller, less), (larger, more) = points[right - 1], points[right]
        return max(points[0][1], less + (size - smaller) * (more - less) / (larger - smaller))


@dataclass(frozen=True, slots=True)
class Links:
    """Between the GPUs of a node, and between nodes; None where nothing is known of it."""

    inside: Link | None
    between: Link | None

    def seconds(self, term: Term) -> float | None:
        """Return how long a term takes over the links that it needs."""
        link = self.between if term.group.nodes > 1 else self.inside
        return link.seconds(term) if link is not None else None
