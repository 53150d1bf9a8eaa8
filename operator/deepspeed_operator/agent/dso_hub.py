"""Rank 0's agent as the gang's hub: which pods are there, when their round opens, and who of them falls silent.

The HTTP thread alone changes a hub: it handles one heartbeat after the other, so that two changes never meet, and
nothing here needs a lock. The main thread only reads single attributes, and copies of what grows. Time is an argument.
"""

from __future__ import annotations

from typing import Any

from dso_address import MOST, canonical, name_addresses, owners
from dso_hubround import HubRound
from dso_launch import PROTOCOL, Cause, LaunchDocument

MOST_REFUSED, REFUSED_SECONDS = 16, 30.0


class Peer:
    """A pod of the gang, as its last heartbeat describes it."""

    __slots__ = ("addresses", "informed", "node", "phase", "pod", "seen", "uid")

    def __init__(self, uid: str, pod: str, node: str) -> None:
        self.uid, self.pod, self.node = uid, pod, node
        self.phase = ""
        self.seen = 0.0
        self.informed = False  # it knows how the round ends
        self.addresses: list[str] = []


class Hub:
    def __init__(self, launch: LaunchDocument, now: float) -> None:
        self.launch = launch
        # Each agent judges for itself whether it reached rank 0; the second keeps the two verdicts apart.
        self.deadline = now + launch.deadline + 1
        self.peers: dict[int, Peer] = {}
        self.round = HubRound(launch, self.name_peers)
        self.next_check = 0.0
        self.refusals: dict[str, tuple[str, float]] = {}  # by address, why and when

    def missing(self) -> list[int]:
        return [index for index in range(self.launch.nodes) if index not in self.peers]

    def heartbeat(self, body: dict[str, Any], now: float) -> tuple[int, dict[str, Any]]:
        """A member is there, in this phase of this round, perhaps with the cause of its end."""
        refusal = self._refusal(body)
        if refusal:
            return 409, {"refused": refusal}
        index = body["index"]
        peer = self.peers.get(index)
        if peer is None or peer.uid != body["podUid"]:
            peer = self.peers[index] = Peer(body["podUid"], body["pod"], body["node"])
        peer.seen, peer.phase = now, body["phase"]
        peer.addresses = [each for each in body["addresses"][:MOST] if isinstance(each, str)]
        self.round.take(index, body, now)
        self._advance(now)
        return 200, self.reply()

    def _refusal(self, body: dict[str, Any]) -> str:
        launch, index = self.launch, body["index"]
        if body["protocol"] != PROTOCOL:
            return f"protocol {body['protocol']}; this gang speaks {PROTOCOL}"
        if (body["uid"], body["attempt"]) != (launch.uid, launch.attempt):
            here = f"attempt {launch.attempt} of {launch.uid}"
            return f"attempt {body['attempt']} of job uid {body['uid']}; here is {here}"
        if not 0 <= index < launch.nodes:
            return f"index {index} of {launch.nodes} nodes"
        peer = self.peers.get(index)
        if self.round.opened and peer and peer.uid != body["podUid"]:
            return f"the ranks run, with pod {peer.pod} uid {peer.uid} as index {index}"
        return ""

    def note_refusal(self, host: str, why: str, now: float) -> None:
        """Who calls is known by its address alone, of which the operator knows whose it is."""
        if canonical(host) in self.refusals or len(self.refusals) < MOST_REFUSED:
            self.refusals[canonical(host)] = why, now

    def refused(self, now: float) -> dict[str, str]:
        return {host: why for host, (why, at) in dict(self.refusals).items() if now - at < REFUSED_SECONDS}

    def reply(self) -> dict[str, Any]:
        return {
            "round": self.round.number if self.round.opened else None,
            "finished": self.round.finished,
            "cause": self.round.cause,
            "registered": len(self.peers),
            "node": self.launch.node,
        }

    def sent(self, body: dict[str, Any], reply: dict[str, Any]) -> None:
        """A member has its reply: rank 0's agent may end once all have the last one."""
        peer = self.peers.get(body["index"])
        if peer and (reply["cause"] or reply["finished"]):
            peer.informed = True

    def all_informed(self) -> bool:
        return all(peer.informed for peer in list(self.peers.values()))

    def is_news(self, body: dict[str, Any]) -> bool:
        """Whether the answer to this heartbeat would tell the member something that it does not know."""
        return self.round.decided or (self.round.opened and body["round"] != self.round.number)

    def check(self, now: float) -> None:
        """What time alone decides."""
        if now < self.next_check or self.round.decided:
            return
        self.next_check = now + 0.25
        if not self.round.opened:
            # A pod that registered and died is waited for like one that never came.
            quiet = now - 2 * self.launch.hold - 5
            self.peers = {index: peer for index, peer in self.peers.items() if peer.seen > quiet}
        self._advance(now)
        if self.round.decided:
            return
        if self.round.opened:
            self._check_silent(now)
        elif now > self.deadline:
            self.round.conclude(self._peers_missing())

    def _advance(self, now: float) -> None:
        if self.round.decided:
            return
        if self.round.opened and self._have_succeeded():
            self.round.finish()
        elif self.round.suspect:
            self.round.settle(now)
        elif not self.round.opened and len(self.peers) == self.launch.nodes:
            for peer in self.peers.values():
                peer.seen = now
            self.round.opened = True

    def _have_succeeded(self) -> bool:
        """Whether the ranks of all pods that count have ended with 0."""
        counting = [self.peers[0]] if self.launch.head_decides else self.peers.values()
        return all(peer.phase == "Finished" for peer in counting)

    def _check_silent(self, now: float) -> None:
        fence = self.launch.fence
        for index, peer in self.peers.items():
            # A member that has finished owes no more signs of life.
            if peer.phase != "Finished" and now - peer.seen > fence:
                text = f"no sign of life from pod {peer.pod} (host {self.launch.hosts[index]}) on node {peer.node}"
                cause = self.launch.cause("PeerLost", f"{text} for {fence} s", index)
                self.round.conclude({**cause, "pod": peer.pod, "node": peer.node})
                peer.informed = True  # nobody waits for it: it has ended its ranks itself, or is gone
                return

    def _peers_missing(self) -> Cause:
        missing = self.missing()
        names = ", ".join(self.launch.hosts[index] for index in missing[:10])
        text = f"{len(missing)} of {self.launch.nodes} hosts did not start within {self.launch.deadline} s: {names}"
        return self.launch.cause("PeersMissing", text + (", …" if len(missing) > 10 else ""), missing[0])

    def name_peers(self, text: str) -> str:
        """The text with ranks and pods in place of their addresses."""
        slots = self.launch.slots
        pods: list[Any] = []
        for index, peer in self.peers.items():
            ranks = f"rank {index}" if slots == 1 else f"one of ranks {index * slots} to {(index + 1) * slots - 1}"
            pods.append((f"{ranks} in pod {peer.pod}", peer.node, peer.addresses))
        return name_addresses(text, owners(pods))
