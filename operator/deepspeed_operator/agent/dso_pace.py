"""How long the ranks of this pod have been where they are, and how long that took before: what tells a hang.

Output, heartbeats and busy GPUs are no sign of progress: only an optimizer step is, or that a phase ends.
"""

from __future__ import annotations

import threading
from typing import Any, Collection, Mapping, Sequence

from dso_progressranks import RankProgress
from dso_stragglers import OwnTimes

STARTING, FIRST_STEP, STEP, EVALUATION, SAVING = "Starting", "FirstStep", "Step", "Evaluation", "Saving"
BEFORE_STEPS = (STARTING, FIRST_STEP)
REPEATED = (STEP, EVALUATION, SAVING)  # phases that come again, and so can be learned


class ToldSteps:
    """What sources other than the engines tell of steps: a program may train without any."""

    def __init__(self, at: float | None, complete: bool) -> None:
        self.at = at  # when a step that is news was told last; None: never
        self.complete = complete  # the last of all steps has been made


class Pace:
    """Of the ranks of one pod in one round. Threads of the member call it, one at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.slowest: dict[str, float] = {}  # by phase, seconds
        self.marks: dict[int, tuple[str, float]] = {}  # by rank, its phase and when it began or its last step ended
        self.told = 0  # steps of other sources
        self.own = OwnTimes()

    def take(
        self,
        ranks: Sequence[RankProgress],
        alive: Collection[int] | None,
        told: ToldSteps,
        started: float,
        now: float,
    ) -> dict[str, Any]:
        """What the hub gets: docs/agent-protocol.md lists it as `pace`.

        `alive`: the ranks that run here; None where a launcher starts them. `started`: when they were.
        """
        with self.lock:
            ours = [each for each in ranks if alive is None or each.rank in alive]
            idle: dict[str, float] = {}
            steps = [each.taken for each in ours]
            for each in ours:
                mark = max(each.since, each.at or 0.0)
                self._learn(each.rank, each.phase, mark)
                since = started if each.phase in BEFORE_STEPS else mark
                idle[each.phase] = min(now - since, idle.get(each.phase, now - since))
            if (alive is not None and len(ours) < len(alive)) or not ours:
                idle[STARTING] = now - started
            if told.at is not None:
                if not ours:  # no engine: these are the steps
                    self._learn(-1, STEP, told.at)
                    steps, idle = [self.told], {STEP: now - told.at}
                idle = {phase: min(seconds, now - told.at) for phase, seconds in idle.items()}
            return {
                "idle": {phase: round(seconds, 3) for phase, seconds in idle.items()},
                "slowest": {phase: round(seconds, 3) for phase, seconds in self.slowest.items()},
                "steps": [min(steps), max(steps)] if steps else None,
                "complete": told.complete,
                "own": self.own.take(ours, now),
            }

    def _learn(self, rank: int, phase: str, mark: float) -> None:
        """Take where a rank is now; what it did before has taken until now. Several stays between two looks are one."""
        before, begun = self.marks.get(rank, (phase, mark))
        self.marks[rank] = (phase, mark)
        if mark > begun:
            self.told += rank < 0
            if before in REPEATED:
                self.slowest[before] = max(mark - begun, self.slowest.get(before, 0.0))


class Limit:
    """For how long a phase may go on; `learned`: nobody has given it."""

    __slots__ = ("learned", "seconds", "words")

    def __init__(self, seconds: float, learned: bool, words: str) -> None:
        self.seconds, self.learned, self.words = seconds, learned, words


class Limits:
    """Of all phases: those that are given, and what the ranks' own pace has taught."""

    FACTOR = 5.0  # times the slowest that was seen, as NVIDIA's resiliency extension computes it
    LEAST_STEPS = 16
    LEAST_SECONDS = 300.0  # a data loader that begins an epoch, or code of the program's own, may take minutes

    def __init__(self, given: Mapping[str, float | None]) -> None:
        self.given = given
        self.before: dict[str, float] = {}  # what rounds before have taught

    def of(self, phase: str, paces: Collection[Mapping[str, Any]], learns: bool) -> Limit | None:
        """None: there is none, as nobody has given it, and it was never seen. `learns`: whether that counts now."""
        given = self.given.get(phase)
        if given is not None:
            return Limit(given, False, f"limit {given:g} s")
        seconds = self.learned(phase, paces) if learns else None
        if seconds is None:
            return None
        if phase == EVALUATION:
            seconds = max(seconds, self.given.get(STEP) or 0.0)
        of_limit = max(seconds, self.LEAST_SECONDS)
        return Limit(of_limit, True, f"learned limit {of_limit:.0f} s")

    def learned(self, phase: str, paces: Collection[Mapping[str, Any]]) -> float | None:
        """In seconds, without the least; the mean of what this round and those before teach."""
        steps = [pace["steps"][0] for pace in paces if pace["steps"]]
        if not steps or min(steps) < self.LEAST_STEPS:
            return None
        seen = [pace["slowest"][phase] for pace in paces if phase in pace["slowest"]]
        before = self.before.get(phase)
        if not seen:
            return before
        now = self.FACTOR * max(seen)
        return now if before is None else (now + before) / 2

    def keep(self, paces: Collection[Mapping[str, Any]]) -> None:
        """A round is over: what it has taught counts by half in the next."""
        for phase in REPEATED:
            seconds = self.learned(phase, paces)
            if seconds is not None:
                self.before[phase] = seconds
