"""Whether the gang hangs: no rank of any pod makes a step, each for longer than its phase may take.

The hub feeds it with what the members report. Once no rank moves, it asks them for evidence, where each rank stands;
then it says who is behind. All of it is arithmetic: time is an argument.
"""

from __future__ import annotations

from typing import Any, Collection, Mapping, NamedTuple, Sequence

from dso_behind import Standing, behind, loads_apart
from dso_pace import FIRST_STEP, SAVING, STARTING, STEP, Limit, Limits
from dso_stragglers import Stragglers

EVIDENCE_SECONDS = 10.0  # for which the members' evidence is waited for
_WORDS = {STARTING: "no first step", FIRST_STEP: "no first step", "Evaluation": "evaluating", SAVING: "saving"}


class Stall(NamedTuple):
    """No rank has moved for so many seconds; the phase whose limit was over last, and that limit."""

    seconds: float
    phase: str
    limit: Limit


class Hang(NamedTuple):
    """`rank` of who is behind, and `pod`, the index of its pod; None where that is not certain."""

    words: str
    rank: int | None
    pod: int | None
    stall: Stall
    restarts: bool  # the ranks are to start again


class HangDetector:
    def __init__(self, given: Mapping[str, Any]) -> None:
        """`given` is `hang` of the launch document."""
        first, steps, saving = (given[each] for each in ("firstStepSeconds", "progressSeconds", "checkpointSeconds"))
        self.limits = Limits({STARTING: first, FIRST_STEP: first, STEP: steps, SAVING: saving})
        self.restarts: bool = given["restart"]
        self.episodes = 0
        self.number = 0  # of the evidence that members are asked for; 0: none is wanted
        self.asked_at = 0.0
        self.paces: dict[int, Mapping[str, Any]] = {}  # by index of the pod
        self.evidence: dict[int, Sequence[Mapping[str, Any]]] = {}
        self.hang: Hang | None = None
        self.stragglers = Stragglers()

    def begin(self) -> None:
        """Another round."""
        self.limits.keep(self.paces.values())
        self.paces, self.stragglers = {}, Stragglers()
        self._move()

    def take(self, index: int, pace: Mapping[str, Any] | None, number: int, evidence: Any) -> None:
        """What a member reports: its pace, None where no rank runs; and the evidence that this number has asked for."""
        if pace is None:
            self.paces.pop(index, None)
        else:
            self.paces[index] = pace
        if evidence is not None and number == self.number:
            self.evidence[index] = evidence

    def check(self, now: float, pods: Collection[int], left: str = "") -> Hang | None:
        """The hang, once it is known who is behind; None while there is none.

        `pods` are those whose ranks have not finished; `left`: which rank has ended with 0, in words.
        """
        stall = self._stall(pods, bool(left))
        if stall is None:
            self._move()
        elif not self.number:
            self.episodes += 1
            self.number, self.asked_at = self.episodes, now
        elif self.hang is None and (set(self.evidence) >= set(pods) or now - self.asked_at > EVIDENCE_SECONDS):
            self.hang = self._describe(stall, left)
        return self.hang

    def _move(self) -> None:
        """Steps go on, or begin anew."""
        self.number, self.evidence, self.hang = 0, {}, None

    def _stall(self, pods: Collection[int], left: bool) -> Stall | None:
        paces = [self.paces[index] for index in pods if index in self.paces]
        if not paces or len(paces) < len(pods):
            return None
        stepped = any(pace["steps"] and pace["steps"][1] for pace in paces)
        # After the last step, programs do what they have never done before.
        learns = not (left or any(pace["complete"] for pace in paces))
        found: list[Stall] = []
        limits: dict[str, Limit | None] = {}
        for pace in paces:
            for phase, seconds in pace["idle"].items():
                if stepped and phase == STARTING:
                    continue  # beside ranks that train there may be others
                if phase not in limits:
                    limits[phase] = self.limits.of(phase, paces, learns)
                limit = limits[phase]
                if limit is None or seconds <= limit.seconds:
                    return None
                found.append(Stall(seconds, phase, limit))
        if not found:
            return None
        last = min(found, key=lambda stall: stall.seconds - stall.limit.seconds)
        return last._replace(seconds=min(stall.seconds for stall in found))

    def _describe(self, stall: Stall, left: str) -> Hang:
        standings = [Standing(index, rank) for index in sorted(self.evidence) for rank in self.evidence[index]]
        who = behind(standings)
        ended = f"; {left} has ended with 0" if left else ""
        what = _WORDS.get(stall.phase, "no step")
        words = f"{who.words}{loads_apart(standings)}{ended}; {what} for {stall.seconds:.0f} s, {stall.limit.words}"
        restarts = self.restarts or not stall.limit.learned
        return Hang(words, who.rank, who.pod, stall, restarts)
