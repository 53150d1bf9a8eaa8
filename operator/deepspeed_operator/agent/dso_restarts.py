"""The attempt's restarts in place, as the hub counts them, decides on the next one, and puts it into words."""

from __future__ import annotations

import time
from typing import Any, Mapping, Optional, Tuple

from dso_cause import ending
from dso_launch import Cause, LaunchDocument
from dso_policy import UNCOUNTED, FailurePolicy, Record, Verdict, first_record

Progress = Tuple[Optional[bool], bool]  # whether a rank has made a step, None where unseen, and saved
SIGNATURE = 200  # characters
MOST_NODES = 50


class Restarts:
    """A restart counts once its round has opened: until then the attempt may still end with the failure before it."""

    def __init__(self, launch: LaunchDocument) -> None:
        self.policy = FailurePolicy(launch.failure_policy)
        self.record = first_record(self.policy)
        self.number = launch.round  # of the latest round that has opened
        self.last: dict[str, Any] | None = None  # the failure before it
        self.begins_at = float("-inf")  # not before the pause is over
        self.refused = ""  # why the attempt ends instead
        self.story = ""  # of the latest restart, for the log
        # Of the next restart, between its decision and its round.
        self.pending: Verdict | None = None
        self.pending_cause: Cause | None = None
        self.progress: Progress = None, False  # of the round that it ended
        self.decided_at = self.detect_seconds = self.slowest_stop = self.pause = 0.0

    def decide(self, cause: Cause, verdict: Verdict, now: float, detect: float, jitter: float) -> None:
        """There is to be another round after this cause, which took so many seconds to be known."""
        assert verdict.record
        self.pending, self.pending_cause = verdict, cause
        self.pause = self.policy.pause(verdict.record.unhealthy, jitter)
        self.decided_at, self.begins_at = now, now + self.pause
        self.detect_seconds, self.slowest_stop = detect, 0.0

    def opened(self, number: int, now: float, endings: str) -> None:
        """This round has opened; `endings`: how the ranks of the one before ended, in lines."""
        if not (self.pending and self.pending.record and self.pending_cause):
            return  # the attempt's first round
        cause = self.pending_cause
        self.number, self.record = number, self.pending.record
        known = {name: cause[name] for name in ("reason", "rank", "pod", "node", "exitCode", "signal")}
        self.last = {"time": int(time.time()), **known, "signature": cause["signature"][:SIGNATURE]}
        others = max(0.0, now - self.decided_at - max(self.slowest_stop, self.pause))
        times = f"detected in {self.detect_seconds:.1f} s, stopped in {self.slowest_stop:.1f} s"
        waited = f", paused until {self.pause:.0f} s were over" if self.pause > self.slowest_stop else ""
        self.story = (
            f"round {number} begins: {failure(cause)}; {self.pending.words}; {times}{waited}, barrier {others:.1f} s"
        )
        self.story = f"{endings}\n{self.story}" if endings else self.story
        self.pending = self.pending_cause = None

    def snapshot(self, stepped: bool | None, saved: bool) -> dict[str, Any]:
        """All that another hub needs to go on, should this one be lost. Members keep it."""
        record = self.record
        if self.pending_cause:
            stepped, saved = self.progress  # by which another hub judges that cause again
        return {
            "number": self.number,
            "last": self.last,
            "counts": record.counts,
            "key": record.key,
            "alike": record.alike,
            "unhealthy": record.unhealthy,
            "nodes": sorted(record.nodes)[:MOST_NODES],
            "stepped": stepped,
            "saved": saved,
            "over": self.pending_cause,
        }

    def resume(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from what another hub has counted, if that is more."""
        counts = snapshot["counts"]
        if (snapshot["number"], sum(counts.values())) < (self.number, sum(self.record.counts.values())):
            return
        self.number, self.last = snapshot["number"], snapshot["last"]
        nodes = frozenset(snapshot["nodes"])
        self.record = Record(counts, snapshot["key"], snapshot["alike"], snapshot["unhealthy"], nodes)

    def summary(self) -> dict[str, Any]:
        """docs/agent-protocol.md lists it as `rounds`."""
        counts = self.record.counts
        return {
            "number": self.number,
            "user": counts["user"],
            "infrastructure": counts["infrastructure"],
            "uncounted": counts[UNCOUNTED],
            "repeated": {"key": self.record.key, "count": self.record.alike},
            "last": self.last,
        }


def knows(snapshot: Mapping[str, Any]) -> tuple[int, bool, int, bool]:
    """What makes one snapshot better than another: members do not all have the latest one, or have a new hub's own."""
    stepped = {None: 0, False: 1, True: 2}[snapshot["stepped"]]
    return snapshot["number"], bool(snapshot["over"]), stepped, snapshot["saved"]


def failure(cause: Cause) -> str:
    """Who failed and how, in words."""
    if cause["exitCode"] is None and cause["signal"] is None:
        where = f" in pod {cause['pod']}" if cause["pod"] else ""
        return f"{cause['reason']}{where}: {cause['signature']}"
    return ending(cause, f" in pod {cause['pod']}")
