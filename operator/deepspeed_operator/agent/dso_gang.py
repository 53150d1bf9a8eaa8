"""The gang as rank 0's agent sees it: who is there, when the ranks may start, and the one cause if it ends.

Only the HTTP thread calls it, so it needs no lock; time is an argument.
"""

from __future__ import annotations

from typing import Any

from dso_address import MOST, canonical, named, owners
from dso_plan import PROTOCOL, Cause, Plan
from dso_symptom import is_secondary
from dso_transport import summary, those_on
from dso_world import World

SETTLE_SECONDS = 1.5
MOST_REFUSED, REFUSED_SECONDS = 16, 30.0


class Member:
    __slots__ = ("addresses", "node", "phase", "pod", "seen", "told", "uid")

    def __init__(self, uid: str, pod: str, node: str) -> None:
        self.uid, self.pod, self.node = uid, pod, node
        self.phase = ""
        self.seen = 0.0
        self.told = False
        self.addresses: list[str] = []


class Gang:
    def __init__(self, plan: Plan, now: float) -> None:
        self.plan = plan
        # Each agent judges for itself whether it found rank 0; the second keeps the two verdicts apart.
        self.deadline = now + plan.deadline + 1
        self.members: dict[int, Member] = {}
        self.released = False
        self.finished = False
        self.cause: Cause | None = None
        self.suspect: Cause | None = None
        self.left: Cause | None = None  # the first rank that ended with 0
        self.settles = 0.0
        self.version = 0
        self.next_check = 0.0
        self.refusals: dict[str, tuple[str, float]] = {}  # by address, why and when
        self.transports: dict[int, dict[str, Any]] = {}
        self.world = World(plan)

    def missing(self) -> list[int]:
        return [index for index in range(self.plan.nodes) if index not in self.members]

    def beat(self, body: dict[str, Any], now: float) -> tuple[int, dict[str, Any]]:
        """A call of one agent: it is there, in this phase, perhaps with the cause of its end."""
        refusal = self._refusal(body)
        if refusal:
            return 409, {"refused": refusal}
        index = body["index"]
        member = self.members.get(index)
        if member is None or member.uid != body["podUid"]:
            member = self.members[index] = Member(body["podUid"], body["pod"], body["node"])
        member.seen, member.phase = now, body["phase"]
        member.addresses = [each for each in body.get("addresses", [])[:MOST] if isinstance(each, str)]
        self.left = self.left or body.get("left")
        if body.get("transport"):
            self._take_transport(index, body["transport"])
        if body.get("world"):
            self.world.take(index, body["world"])
        if body["cause"] and not self.cause:
            self._propose(body["cause"], now)
        self._advance(now)
        return 200, self.reply()

    def _refusal(self, body: dict[str, Any]) -> str:
        plan, index = self.plan, body["index"]
        if body["protocol"] != PROTOCOL:
            return f"protocol {body['protocol']}; this gang speaks {PROTOCOL}"
        if (body["uid"], body["attempt"]) != (plan.uid, plan.attempt):
            return f"attempt {body['attempt']} of job uid {body['uid']}; here is attempt {plan.attempt} of {plan.uid}"
        if not 0 <= index < plan.nodes:
            return f"index {index} of {plan.nodes} nodes"
        member = self.members.get(index)
        if self.released and member and member.uid != body["podUid"]:
            return f"the ranks run, with pod {member.pod} uid {member.uid} as index {index}"
        return ""

    def note_refusal(self, host: str, why: str, now: float) -> None:
        """Who calls is known by its address alone, of which the operator knows whose it is."""
        if canonical(host) in self.refusals or len(self.refusals) < MOST_REFUSED:
            self.refusals[canonical(host)] = why, now

    def refused(self, now: float) -> dict[str, str]:
        return {host: why for host, (why, at) in dict(self.refusals).items() if now - at < REFUSED_SECONDS}

    def reply(self) -> dict[str, Any]:
        return {
            "released": self.released,
            "finished": self.finished,
            "cause": self.cause,
            "registered": len(self.members),
            "node": self.plan.node,
        }

    def sent(self, body: dict[str, Any], reply: dict[str, Any]) -> None:
        """A member has its reply: rank 0's agent may end once all have the last one."""
        member = self.members.get(body["index"])
        if member and (reply["cause"] or reply["finished"]):
            member.told = True

    def is_news(self, body: dict[str, Any]) -> bool:
        return bool(self.cause or self.finished or (self.released and body["phase"] == "Waiting"))

    def check(self, now: float) -> None:
        """What time alone decides."""
        if now < self.next_check or self.cause or self.finished:
            return
        self.next_check = now + 0.25
        if not self.released:
            # A pod that registered and died is waited for like one that never came.
            quiet = now - 2 * self.plan.beat - 5
            self.members = {index: member for index, member in self.members.items() if member.seen > quiet}
        self._advance(now)
        if not self.released and now > self.deadline:
            self._conclude(self._peers_missing())
        for index, member in self.members.items() if self.released and not self.finished else ():
            # A member that has finished owes no more signs of life.
            if member.phase != "Finished" and now - member.seen > self.plan.fence and not self.cause:
                text = f"no sign of life from pod {member.pod} (host {self.plan.hosts[index]}) on node {member.node}"
                cause = self.plan.cause("PeerLost", f"{text} for {self.plan.fence} s", index)
                self._conclude({**cause, "pod": member.pod, "node": member.node})
                member.told = True  # nobody waits for it: it has ended its ranks itself, or is gone

    def _peers_missing(self) -> Cause:
        missing = self.missing()
        names = ", ".join(self.plan.hosts[index] for index in missing[:10])
        text = f"{len(missing)} of {self.plan.nodes} hosts did not start within {self.plan.deadline} s: {names}"
        return self.plan.cause("PeersMissing", text + (", …" if len(missing) > 10 else ""), missing[0])

    def transport(self, over: bool, note: str) -> dict[str, Any]:
        return summary(self.plan, dict(self.transports), over, note)

    def _take_transport(self, index: int, report: dict[str, Any]) -> None:
        try:
            summary(self.plan, {index: report}, False, "")
        except (ValueError, LookupError, TypeError, AttributeError):
            return  # not an agent's
        self.transports[index] = report
        fabric = self.plan.fabric
        if fabric and self.released and not self.cause:
            slow = those_on(fabric["fallbacks"], self.transport(False, ""))
            if slow:
                text = f"{slow}, but spec.network.require is set and the profile is {fabric['profile']}"
                self._conclude(self.plan.cause("TransportMismatch", text))

    def _propose(self, cause: Cause, now: float) -> None:
        if not is_secondary(cause):
            self._conclude(cause)
        elif not self.suspect:
            self.suspect, self.settles = cause, now + SETTLE_SECONDS

    def _conclude(self, cause: Cause) -> None:
        self.cause = {**cause, "signature": self._named(cause["signature"])[:300]}
        self.version += 1

    def _behind(self, suspect: Cause) -> Cause:
        """What explains that a rank lost another one: that one has ended with 0, where it has."""
        if not self.left:
            return suspect
        who = "another pod's program" if suspect["rank"] is None else f"rank {suspect['rank']}"
        return {**self.left, "signature": f"{who} then failed: {suspect['signature']}"}

    def _named(self, text: str) -> str:
        slots = self.plan.slots
        pods: list[Any] = []
        for index, member in self.members.items():
            ranks = f"rank {index}" if slots == 1 else f"one of ranks {index * slots} to {(index + 1) * slots - 1}"
            pods.append((f"{ranks} in pod {member.pod}", member.node, member.addresses))
        return named(text, owners(pods))

    def _advance(self, now: float) -> None:
        if self.cause or self.finished:
            return
        if self.suspect:
            if now >= self.settles:
                self._conclude(self._behind(self.suspect))
        elif not self.released:
            if len(self.members) == self.plan.nodes:
                for member in self.members.values():
                    member.seen = now
                self.released = True
                self.version += 1
        elif all(member.phase == "Finished" for member in self.members.values()):
            mismatch = self.world.mismatch()
            if mismatch:
                self._conclude(self.plan.cause("WorldMismatch", mismatch))
                return
            self.finished = True
            self.version += 1

    def all_told(self) -> bool:
        return all(member.told for member in list(self.members.values()))
