"""Where an attempt's wall time goes, as rank 0's agent sees it by the steps of rank 0, over all of its rounds.

Only what has come to its end is counted: a step, a save, a start. What is under way then may still be lost: a step in
which a rank fails was for nothing. Time is an argument, and time.monotonic() of this machine.
"""

from __future__ import annotations

from typing import Any, Mapping

STARTING, RESTARTING, PRODUCTIVE = "starting", "restarting", "productive"
REPEATED, SAVING, HUNG = "repeated", "saving", "hung"
KINDS = (STARTING, RESTARTING, PRODUCTIVE, REPEATED, SAVING, HUNG)
OF_A_HANG = frozenset({"Hang", "NcclTimeout"})  # reasons of failures


class LastStep:
    """How far rank 0 has come in one round.

    `at`: when its last step or save ended, and `first` its first step. `number` is the last step's, and `taken` how
    many it has made. `saving`: the seconds of all its saves. `counted`: whether the number counts the steps of the run,
    and not those since the start.
    """

    __slots__ = ("at", "counted", "first", "number", "saving", "taken")

    def __init__(self, number: int, at: float, *, first: float, taken: int, saving: float, counted: bool) -> None:
        self.number, self.at, self.first, self.taken = number, at, first, taken
        self.saving, self.counted = saving, counted


class WallTime:
    """The main thread counts. Others read `seconds`, which is replaced as a whole."""

    def __init__(self, now: float, reached: int = 0) -> None:
        """`reached`: the highest step that the run had made before the attempt."""
        self.seconds: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        self.until = now  # everything before is counted
        self.round = 0
        self.begun = False  # the attempt has made a step
        self.stepped = False  # the round has
        self.number = 0  # of the last step that is counted
        self.saving = 0.0  # of the round's saves, what is counted
        self.reached = self.highest = reached  # before the round, and by now

    def look(self, number: int, last: LastStep | None) -> None:
        """See how far the round of this number is; None: no step was seen yet."""
        if number != self.round:
            self.round, self.stepped, self.saving, self.reached = number, False, 0.0, self.highest
        if last is None:
            return
        if not self.stepped:
            self._count(last.first, RESTARTING if self.begun else STARTING)
            self.begun = self.stepped = True
            self.number = last.number - last.taken + 1
        passed = max(0.0, last.at - self.until)
        saving = min(passed, max(0.0, last.saving - self.saving))
        again = (passed - saving) * self._repeated(last)
        self._add(**{SAVING: saving, REPEATED: again, PRODUCTIVE: passed - saving - again})
        self.until, self.number, self.saving = max(self.until, last.at), last.number, max(self.saving, last.saving)
        if last.counted:
            self.highest = max(self.highest, last.number)

    def _repeated(self, last: LastStep) -> float:
        """The share of the steps since the last look that the run had made before."""
        if not last.counted or self.number >= self.reached:
            return 0.0
        return 1.0 if last.number <= self.reached else (self.reached - self.number) / (last.number - self.number)

    def end_round(self, reason: str, now: float) -> None:
        """It has ended by a failure of this reason: since the last step it may have hung."""
        if self.stepped and reason in OF_A_HANG:
            self._count(now, HUNG)

    def succeed(self, now: float) -> None:
        """All ranks have ended with 0: what they did after their last step was no loss."""
        if self.stepped:
            self._count(now, PRODUCTIVE)

    def resume(self, told: Mapping[str, Any], now: float, parted: float) -> None:
        """Go on from what another hub has counted, which answered last so many seconds ago."""
        if sum(told[kind] for kind in KINDS) > sum(self.seconds.values()):
            self.seconds = {kind: told[kind] for kind in KINDS}
            self.begun, self.until = True, now - parted - told["secondsSince"]
            self.reached = self.highest = max(self.highest, told["reached"])

    def summary(self, now: float) -> dict[str, Any] | None:
        """docs/agent-protocol.md lists it; None before the attempt's first step."""
        if not self.begun:
            return None
        seconds = {kind: round(value, 2) for kind, value in self.seconds.items()}
        return {**seconds, "secondsSince": round(max(0.0, now - self.until), 2), "reached": self.highest}

    def _count(self, until: float, kind: str) -> None:
        self._add(**{kind: max(0.0, until - self.until)})
        self.until = max(self.until, until)

    def _add(self, **seconds: float) -> None:
        self.seconds = {kind: value + seconds.get(kind, 0.0) for kind, value in self.seconds.items()}
