"""The hub's record of one round: what its members report, and the one end that follows for the whole gang."""

from __future__ import annotations

from typing import Any, Callable

from dso_late import waited_for
from dso_launch import Cause, LaunchDocument
from dso_starts import Starts
from dso_symptom import TIMEOUTS, settle_seconds, symptom
from dso_transport import summary, those_on
from dso_world import RanksWorld


class HubRound:
    """A round ends with one cause, or with success; what is reported later changes nothing."""

    def __init__(self, launch: LaunchDocument, number: int, name_peers: Callable[[str], str]) -> None:
        self.launch = launch
        self.number = number
        self.name_peers = name_peers
        # Pods in which nothing of an earlier round is left, and pods whose ranks have all ended with 0.
        self.waiting: set[int] = set()
        self.done: set[int] = set()
        self.opened_at: float | None = None
        self.finished = False
        self.cause: Cause | None = None
        self.failed_at: float | None = None  # when the first failure was reported
        self.stepped: bool | None = None  # whether a rank has made an optimizer step; None: nobody could see one
        # A failure that may only follow from another one, and until when the hub waits for that one's report.
        self.suspect: Cause | None = None
        self.suspect_at = self.settles = 0.0  # when it failed, by this clock
        self.ranks: dict[int, Any] = {}  # what the ranks of each pod printed last, where one of them timed out
        self.pods: dict[int, str] = {}  # their names, with those of their nodes
        self.left: Cause | None = None  # the first rank that ended with 0
        self.transports: dict[int, dict[str, Any]] = {}
        self.world = RanksWorld(launch)
        self.starts = Starts()

    @property
    def opened(self) -> bool:
        return self.opened_at is not None

    @property
    def asks(self) -> bool:
        """Whether members are to tell what their ranks printed last."""
        return bool(self.suspect and not self.cause and self.suspect["reason"] in TIMEOUTS)

    def take(self, index: int, body: dict[str, Any], now: float) -> None:
        """What the heartbeat of this pod reports of this round."""
        if body["phase"] == "Waiting":
            self.waiting.add(index)
        if body["phase"] == "Finished":
            self.done.add(index)
        else:
            self.done.discard(index)
        if body["stepped"] is not None:
            self.stepped = bool(self.stepped or body["stepped"])
        self.left = self.left or body["left"]
        if body["ranks"] is not None:
            self.ranks[index] = body["ranks"]
            self.pods[index] = f"pod {body['pod']} on node {body['node']}"
        if body["transport"]:
            self._take_transport(index, body["transport"])
        if body["world"]:
            self.world.take(index, body["world"])
            self._take_starts(body["world"], f"pod {body['pod']} on node {body['node']}")
        if not body["cause"] or self.cause:
            return
        self.failed_at = now if self.failed_at is None else self.failed_at
        self._take_cause(index, body["cause"], now - (body["ago"] or 0.0), now)

    def _take_cause(self, index: int, cause: Cause, failed_at: float, now: float) -> None:
        known = self.suspect if self.suspect and not symptom(self.suspect) else None
        if not symptom(cause) and (index == 0 or not self.launch.head_decides):
            self.conclude(known or cause)
        elif not self.suspect:
            # Where the head decides it may have ended just now, with success, and the other's program with it.
            self.suspect, self.suspect_at, self.settles = cause, failed_at, now + settle_seconds(cause)
        elif (symptom(cause), failed_at) < (symptom(self.suspect), self.suspect_at):
            self.settles += max(0.0, settle_seconds(cause) - settle_seconds(self.suspect))
            self.suspect, self.suspect_at = cause, failed_at

    def settle(self, now: float) -> None:
        """Nobody has reported what the suspect follows from: it is the cause itself, or a rank that left with 0 is."""
        suspect = self.suspect
        if not suspect or now < self.settles:
            return
        if self.left and symptom(suspect):
            who = "another pod's program" if suspect["rank"] is None else f"rank {suspect['rank']}"
            suspect = {**self.left, "signature": f"{who} then failed: {suspect['signature']}"}
        elif self.asks:
            suspect = {**suspect, "signature": waited_for(suspect, self.ranks, self.pods)}
        self.conclude(suspect)

    def finish(self) -> None:
        """All ranks that count have ended with 0."""
        mismatch = self.world.mismatch()
        if mismatch:
            self.conclude(self.launch.cause("WorldMismatch", mismatch))
        else:
            self.finished = True

    def conclude(self, cause: Cause) -> None:
        self.cause = {**cause, "round": self.number, "signature": self.name_peers(cause["signature"])[:300]}

    def world_summary(self, over: bool) -> dict[str, Any]:
        """The gang's world, as RanksWorld.summary has it, and where its ranks began apart."""
        return {**self.world.summary(over), "starts": self.starts.words[:300] or None}

    def _take_starts(self, report: Any, place: str) -> None:
        self.starts.take(report, place)
        # Where the head decides, what another pod trains may be its own affair.
        if self.starts.wrong and self.opened and not (self.cause or self.launch.head_decides):
            self.conclude(self.launch.cause("ResumeMismatch", self.starts.words))

    def transport(self, over: bool, note: str) -> dict[str, Any]:
        """How the gang's ranks are connected: dso_transport.summary."""
        return summary(self.launch, dict(self.transports), over, note)

    def _take_transport(self, index: int, report: dict[str, Any]) -> None:
        try:
            summary(self.launch, {index: report}, False, "")
        except (ValueError, LookupError, TypeError, AttributeError):
            return  # not an agent's
        self.transports[index] = report
        fabric = self.launch.fabric
        if fabric and self.opened and not self.cause:
            slow = those_on(fabric["fallbacks"], self.transport(False, ""))
            if slow:
                text = f"{slow}, but spec.network.require is set and the profile is {fabric['profile']}"
                self.conclude(self.launch.cause("TransportMismatch", text))
