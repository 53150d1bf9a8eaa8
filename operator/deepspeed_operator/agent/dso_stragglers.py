"""Ranks that compute more slowly than the others: in each step all wait for them.

The time of a step does not show them, since all ranks end a step together. What a rank spends in its forward pass does,
where no collective is part of that: each computes alone there.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from dso_progressranks import RankProgress

LEAST_PASSES, LEAST_SECONDS = 100, 60.0  # of a window: what single batches differ by is no news
SLOW, SLOW_NO_MORE = 1.25, 1.15  # times as long as half of the ranks take at most
LOOK_SECONDS = 10.0
MOST_TOLD = 8


class OwnTimes:
    """Of the ranks of one pod: what a forward pass took in the last whole window."""

    def __init__(self) -> None:
        # By rank, of its window: when it began, passes and seconds until then.
        self.begun: dict[int, tuple[float, int, float]] = {}
        self.means: dict[int, float] = {}

    def take(self, ranks: Sequence[RankProgress], now: float) -> list[list[float]]:
        """Return of each rank whose passes are timed its number and the mean in seconds."""
        for each in ranks:
            at, passes, seconds = self.begun.setdefault(each.rank, (now, each.passes, each.pass_seconds))
            done = each.passes - passes
            if done < 0:
                del self.begun[each.rank]  # another engine has begun
            elif done >= LEAST_PASSES and now - at >= LEAST_SECONDS:
                self.means[each.rank] = (each.pass_seconds - seconds) / done
                self.begun[each.rank] = (now, each.passes, each.pass_seconds)
        return [[rank, float(f"{mean:.4g}")] for rank, mean in sorted(self.means.items())]


class Straggler(NamedTuple):
    """Ranks of one pod. `ratio` is that of the slowest when it was found, so that what is told stays as it is."""

    pod: int
    ranks: tuple[int, ...]
    whole: bool  # all ranks of the pod are among them
    ratio: float

    def words(self) -> str:
        numbers = ", ".join(map(str, self.ranks[:MOST_TOLD])) + (", …" if len(self.ranks) > MOST_TOLD else "")
        who = "all ranks" if self.whole and len(self.ranks) > 1 else f"rank{'s' * (len(self.ranks) > 1)} {numbers}"
        verb = "take" if len(self.ranks) > 1 else "takes"
        return (
            f"{who} of this pod {verb} {self.ratio:.2f} times as long for a forward pass as half of all ranks at most"
        )


class Stragglers:
    """The hub's: of all pods, those with ranks that are slow."""

    def __init__(self) -> None:
        self.known: dict[int, Straggler] = {}  # by index of the pod
        self.looks_at = float("-inf")

    def check(self, paces: Mapping[int, Mapping[str, Any]], now: float) -> None:
        if now < self.looks_at:
            return
        self.looks_at = now + LOOK_SECONDS
        means = {index: pace["own"] for index, pace in paces.items() if pace["own"]}
        every = sorted(mean for own in means.values() for _, mean in own)
        if len(every) < 2:
            self.known = {}
            return
        usual = every[(len(every) - 1) // 2]
        found: dict[int, Straggler] = {}
        for index, own in means.items():
            before = self.known.get(index)
            least = usual * (SLOW_NO_MORE if before else SLOW)
            slow = [(int(rank), mean) for rank, mean in own if mean > least]
            if slow:
                ranks, ratio = tuple(rank for rank, _ in slow), max(mean for _, mean in slow) / usual
                new = Straggler(index, ranks, len(slow) == len(own), round(ratio, 2))
                found[index] = before if before and before.ranks == ranks else new
        self.known = found
