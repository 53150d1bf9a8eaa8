"""Rank 0's agent as the gang's hub: which pods are there, when their rounds open and end, and who falls silent.

The HTTP thread alone changes a hub: it handles one heartbeat after the other, so that two changes never meet, and
nothing here needs a lock. The main thread only reads single attributes, and copies of what grows. Time is an argument.
"""

from __future__ import annotations

import random
import time
from typing import Any

from dso_address import MOST, canonical, name_addresses, owners
from dso_checkpoint import Checkpoints
from dso_clocks import Clocks
from dso_endings import Endings
from dso_hang import Hang, HangDetector
from dso_hubround import HubRound
from dso_launch import PROTOCOL, Cause, LaunchDocument
from dso_lost import LostPods
from dso_policy import judge
from dso_reason import OF_A_RANK
from dso_restarts import Restarts, knows
from dso_walltime import WallTime

MOST_REFUSED, REFUSED_SECONDS = 16, 30.0
BARRIER_SECONDS = 60.0  # in which every pod tells that its ranks have ended


class Peer:
    """A pod of the gang, as its last heartbeat describes it."""

    __slots__ = ("addresses", "informed", "node", "pod", "replacement", "seen", "since", "uid")

    def __init__(self, body: dict[str, Any], now: float) -> None:
        self.uid, self.pod, self.node = body["podUid"], body["pod"], body["node"]
        self.replacement: int = body["replacement"]  # its number; 0 for a pod that the attempt began with
        self.since = self.seen = now
        self.informed = False  # it knows how the round ends
        self.addresses: list[str] = []


class Hub:
    def __init__(self, launch: LaunchDocument, now: float) -> None:
        self.launch = launch
        # Each agent judges for itself whether it reached rank 0; the second keeps the two verdicts apart.
        self.deadline = now + launch.deadline + 1
        self.peers: dict[int, Peer] = {}
        self.round = HubRound(launch, launch.round, self.name_peers)
        self.restarts = Restarts(launch)
        self.hangs = HangDetector(launch.hang)
        self.lost = LostPods(launch)
        self.clocks = Clocks()
        self.endings = Endings()
        self.cause: Cause | None = None  # why the attempt ends
        self.checkpoints: Checkpoints | None = None
        self.wall_time = WallTime(now, launch.reached_step)
        self.now = now
        # Its pod took the place of one with a hub: the members bring what that one had told them.
        self.resumes = launch.replacement > 0
        self.before: dict[str, Any] = {}  # how the hub before was, as far as its members know
        self.next_check = 0.0
        self.refusals: dict[str, tuple[str, float]] = {}  # by address, why and when

    @property
    def decided(self) -> bool:
        """Whether the attempt ends."""
        return self.round.finished or self.cause is not None

    @property
    def has_opened(self) -> bool:
        """Whether a round has opened: from then on the gang is complete."""
        return self.round.opened or self.round.number > self.launch.round

    def stage(self) -> tuple[int, bool, bool, bool, int]:
        """What members are told at once when it changes."""
        return self.round.number, self.round.opened, self.decided, self.round.asks, self.hangs.number

    def missing(self) -> list[int]:
        return [index for index in range(self.launch.nodes) if index not in self.peers]

    def heartbeat(self, body: dict[str, Any], now: float) -> tuple[int, dict[str, Any]]:
        """A member is there, in this phase of this round, perhaps with the cause of its end."""
        refusal = self._refusal(body)
        if refusal:
            return 409, {"refused": refusal}
        if body["podUid"] in self.lost.causes:
            self.lost.heard(body["podUid"], now)
            return 200, self.reply(body)
        index = body["index"]
        peer = self.peers.get(index)
        if peer and peer.uid != body["podUid"] and self.has_opened:
            self._take_as_lost(index, peer, body["pod"], now)
            if self.decided:
                return 200, self.reply(body)
        if peer is None or peer.uid != body["podUid"]:
            peer = self.peers[index] = Peer(body, now)
            self.lost.replaced(index, body["fenced"])
        peer.seen = now
        self.clocks.take(index, body["ahead"])
        peer.addresses = [each for each in body["addresses"][:MOST] if isinstance(each, str)]
        self.now = now
        if body["endings"]:
            self.endings.take(index, f"pod {peer.pod} on node {peer.node}", body["endings"], now)
        if self.resumes:
            self._resume(body, now)
        if body["round"] == self.round.number:
            self.restarts.slowest_stop = max(self.restarts.slowest_stop, body["stopSeconds"])
            self.round.take(index, body, now)
            self.hangs.take(index, body["pace"], body["hang"], body["evidence"])
        elif body["stuck"] and not (self.round.opened or self.decided):
            self._give_up(body["stuck"])
        self._advance(now)
        return 200, self.reply(body)

    def _refusal(self, body: dict[str, Any]) -> str:
        launch, index = self.launch, body["index"]
        if body["protocol"] != PROTOCOL:
            return f"protocol {body['protocol']}; this gang speaks {PROTOCOL}"
        if (body["uid"], body["attempt"]) != (launch.uid, launch.attempt):
            here = f"attempt {launch.attempt} of {launch.uid}"
            return f"attempt {body['attempt']} of job uid {body['uid']}; here is {here}"
        if not 0 <= index < launch.nodes:
            return f"index {index} of {launch.nodes} nodes"
        if body["podUid"] in self.lost.causes:
            return ""
        peer, lost = self.peers.get(index), self.lost.awaited.get(index)
        if self.has_opened and peer and peer.uid != body["podUid"] and body["replacement"] <= peer.replacement:
            return f"the ranks run, with pod {peer.pod} uid {peer.uid} as index {index}"
        if lost and body["replacement"] < lost.replacement:
            return f"index {index} was pod {lost.pod} uid {lost.uid}, which came later"
        return ""

    def _take_as_lost(self, index: int, peer: Peer, successor: str, now: float) -> None:
        """The operator has made another pod in the place of this one: it knows that this one is lost."""
        where = f"pod {peer.pod} (host {self.launch.hosts[index]}) on node {peer.node}"
        self._lose(index, peer, f"{where} was lost, and pod {successor} takes its place")
        self._advance(now)

    def _lose(self, index: int, peer: Peer, text: str) -> None:
        """The round, or what is to become one, ends for want of this pod."""
        self.round.conclude({**self.launch.cause("PeerLost", text, index), "pod": peer.pod, "node": peer.node})

    def _resume(self, body: dict[str, Any], now: float) -> None:
        """Learn of a member where the hub before this one was."""
        number, opened = body["knows"]
        number = max(number, opened + 1) if opened else number
        if number > self.round.number:
            self.round = HubRound(self.launch, number, self.name_peers)
        if body["record"]:
            self.restarts.resume(body["record"])
            if body["record"]["wallTime"]:
                self.wall_time.resume(body["record"]["wallTime"], now, body["parted"] or 0.0)
            self.before = max(self.before or body["record"], body["record"], key=knows)
        if body["parted"] is not None and not self.launch.fenced:
            self.lost.hear_of_the_hub_before(now, body["parted"])

    def _take_over(self, now: float) -> None:
        """All members are there: the next round is this hub's, as far as the failure policy lets it."""
        launch, text = self.launch, f"pod {self.launch.pod} takes the place of the one that had rank 0"
        cause: Cause = self.before["over"] or launch.cause("PeerLost", text, launch.index)
        restarts = self.restarts
        stepped, saved = restarts.progress = self.before["stepped"], self.before["saved"]
        verdict = judge(restarts.policy, restarts.record, cause, stepped, 0.0, replaceable=True, saved=saved)
        if verdict.record is None:
            restarts.refused, self.cause = verdict.words, cause
        else:
            restarts.decide(cause, verdict, now, 0.0, random.uniform(-1, 1))

    def note_refusal(self, host: str, why: str, now: float) -> None:
        """Who calls is known by its address alone, of which the operator knows whose it is."""
        if canonical(host) in self.refusals or len(self.refusals) < MOST_REFUSED:
            self.refusals[canonical(host)] = why, now

    def refused(self, now: float) -> dict[str, str]:
        return {host: why for host, (why, at) in dict(self.refusals).items() if now - at < REFUSED_SECONDS}

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        return {
            "round": self.round.number,
            "opened": self.round.opened,
            "finished": self.round.finished,
            "over": self.restarts.pending_cause,
            "cause": self.lost.causes.get(body["podUid"], self.cause),
            "rounds": self.restarts.summary(),
            "stepped": self.round.stepped,
            "asks": self.round.asks,
            "hang": self.hangs.number,
            "resumeFrom": self.checkpoints.resume_from if self.checkpoints else "",
            "registered": len(self.peers),
            "node": self.launch.node,
            "pod": self.launch.pod,
            "hub": self.launch.replacement,
            "record": {
                **self.restarts.snapshot(self.round.stepped, self._has_saved),
                "wallTime": self.wall_time.summary(self.now),
            },
            "clock": time.time(),
            "clocks": self.clocks.apart,
        }

    def sent(self, body: dict[str, Any], reply: dict[str, Any]) -> None:
        """A member has its reply: rank 0's agent may end once all have the last one."""
        peer = self.peers.get(body["index"])
        # Where this pod is lost, the others know all when they know that they wait for another hub.
        leaves = self.launch.index in self.lost.awaited and reply["round"] == self.round.number
        if peer and peer.uid == body["podUid"] and (reply["cause"] or reply["finished"] or leaves):
            peer.informed = True

    def all_informed(self) -> bool:
        """Whether no pod has to be waited for: each knows the end, and has told how its ranks ended if one failed."""
        awaited = self.cause and self.cause["reason"] in OF_A_RANK
        told = self.endings.heard if self.endings.round == self.round.number else ()
        return all(peer.informed and not (awaited and index not in told) for index, peer in list(self.peers.items()))

    @property
    def last_endings(self) -> Endings | None:
        """How ranks of the round ended with which the attempt ends; None where none had failed by itself."""
        known = self.cause and self.endings.round == self.round.number and self.endings.failed
        return self.endings if known else None

    def is_news(self, body: dict[str, Any]) -> bool:
        """Whether the answer to this heartbeat would tell the member something that it does not know."""
        if body["podUid"] in self.lost.causes:
            return True
        if self.round.asks and body["round"] == self.round.number and body["ranks"] is None:
            return True
        if body["hang"] != self.hangs.number and body["round"] == self.round.number:
            return True
        number, opened = self.round.number, self.round.opened
        latest = number if opened else number - 1 if self.has_opened else 0
        return self.decided or body["knows"] != [number, latest]

    def check(self, now: float) -> None:
        """What time alone decides."""
        if now < self.next_check or self.decided:
            return
        self.next_check = now + 0.25
        if not self.has_opened:
            # A pod that registered and died is waited for like one that never came.
            quiet = now - 2 * self.launch.hold - 5
            self.peers = {index: peer for index, peer in self.peers.items() if peer.seen > quiet}
            self.round.waiting.intersection_update(self.peers)
        self._advance(now)
        if self.decided:
            return
        if self.has_opened:
            self._check_silent(now)
            self._check_late(now)
            late = self.lost.late(now)
            if late:
                self._end_without(late)
            elif self.resumes and self.missing() and now > self.deadline:
                self.cause = self._peers_missing()
        elif now > self.deadline:
            self.round.conclude(self._peers_missing())
        if self.round.opened and not (self.round.cause or self.round.suspect):
            self._check_hang(now)
        self._advance(now)

    def _advance(self, now: float) -> None:
        current = self.round
        if self.decided:
            return
        if self.resumes and self.before and not self.missing() and not self.restarts.pending:
            self._take_over(now)
        if not current.cause:
            if current.opened and self._have_succeeded():
                current.finish()
            elif current.suspect:
                current.settle(now)
            elif self._may_open(now):
                self._open(now)
        if current.cause:
            self._judge(current, current.cause, now)

    def _have_succeeded(self) -> bool:
        """Whether the ranks of all pods that count have ended with 0."""
        done = self.round.done
        return 0 in done if self.launch.head_decides else len(done) == self.launch.nodes

    def _may_open(self, now: float) -> bool:
        """Whether all pods wait for the round, and no rank of an earlier one is alive anywhere."""
        if self.decided or self.round.opened or len(self.round.waiting) < self.launch.nodes:
            return False
        # Who has fallen silent may have gone over to another hub, while this one slept.
        here = all(now - peer.seen <= self.launch.fence for peer in self.peers.values())
        return here and now >= self.restarts.begins_at and self.lost.fenced(now)

    def _open(self, now: float) -> None:
        if not self.has_opened:
            for peer in self.peers.values():
                peer.seen = now
        self.round.opened_at = now
        self.resumes = False
        self.restarts.opened(self.round.number, now, self.endings.table())

    def _judge(self, ended: HubRound, cause: Cause, now: float) -> None:
        """A round has ended: the gang has another one in the same pods, or the attempt ends."""
        seconds = now - (now if ended.opened_at is None else ended.opened_at)
        index: int = cause.get("index", -1)  # the agents' own all have one
        replaceable = index in self.peers and self.lost.may_lose(index)
        saved = self._has_saved
        policy, record = self.restarts.policy, self.restarts.record
        verdict = judge(policy, record, cause, ended.stepped, seconds, replaceable=replaceable, saved=saved)
        if verdict.record is None:
            if self.checkpoints and not self.checkpoints.looked(now):
                return  # one may just have been completed
            self.restarts.refused = verdict.words
            self.cause = cause
            return
        self.restarts.progress = ended.stepped, saved
        detect = now - (now if ended.failed_at is None else ended.failed_at)
        self.restarts.decide(cause, verdict, now, detect, random.uniform(-1, 1))
        if verdict.replaces:
            self.lost.lose(index, self.peers.pop(index), cause, now)
        self.hangs.begin()
        self.round = HubRound(self.launch, ended.number + 1, self.name_peers)

    @property
    def _has_saved(self) -> bool:
        return self.checkpoints is not None and self.checkpoints.progressed

    def _check_hang(self, now: float) -> None:
        ended = self.round.left
        left = "" if ended is None else "a program" if ended["rank"] is None else f"rank {ended['rank']}"
        self.hangs.stragglers.check(self.hangs.paces, now)
        hang = self.hangs.check(now, [index for index in self.peers if index not in self.round.done], left)
        if hang and hang.restarts:
            self.round.conclude(self._cause_of(hang))

    def _cause_of(self, hang: Hang) -> Cause:
        """It names nobody where it is not certain who is behind: no node is blamed then."""
        peer = self.peers[hang.pod] if hang.pod is not None else None
        pod, node = (peer.pod, peer.node) if peer else (None, None)
        cause = self.launch.cause("Hang", hang.words, rank=hang.rank)
        return {**cause, "index": hang.pod, "pod": pod, "node": node}

    def stragglers(self) -> list[dict[str, Any]]:
        """docs/agent-protocol.md lists them; those of four pods at most."""
        known = [each for each in self.hangs.stragglers.known.values() if each.pod in self.peers][:4]
        peers = [self.peers[each.pod] for each in known]
        return [{"words": each.words(), "pod": peer.pod, "node": peer.node} for each, peer in zip(known, peers)]

    def hang(self) -> dict[str, Any] | None:
        """docs/agent-protocol.md lists it; None while steps go on."""
        hang = self.hangs.hang
        if hang is None:
            return None
        known = self._cause_of(hang)
        told = {"words": known["signature"], "learned": hang.stall.limit.learned}
        return {**told, **{name: known[name] for name in ("rank", "pod", "node")}}

    def _give_up(self, stuck: str) -> None:
        """A process of the round before does not end: no other round can open, and the attempt ends as that one did."""
        self.restarts.refused = f"a process does not end: {stuck}"
        self.cause = self.restarts.pending_cause

    def _check_silent(self, now: float) -> None:
        fence = self.launch.fence
        for index, peer in self.peers.items():
            # A member that has finished owes no more signs of life.
            if index not in self.round.done and now - peer.seen > fence:
                text = f"no sign of life from pod {peer.pod} (host {self.launch.hosts[index]}) on node {peer.node}"
                self._lose(index, peer, f"{text} for {fence} s")
                peer.informed = True  # nobody waits for it: it has ended its ranks itself, or is gone
                return

    def _check_late(self, now: float) -> None:
        """Of processes that do not end a pod tells after some seconds, unless it hangs with them."""
        ended = self.restarts.pending_cause
        if not ended or self.round.cause:
            return
        # Ranks that end for a pod that was told to may save as long as it may.
        patience = BARRIER_SECONDS + self.launch.conversion_seconds
        patience += self.launch.grace if ended["reason"] == "Terminated" else 0
        for index, peer in sorted(self.peers.items()):
            if index not in self.round.waiting and now > max(self.restarts.decided_at, peer.since) + patience:
                self._give_up(f"pod {peer.pod} did not tell within {patience:.0f} s")
                return

    def _end_without(self, cause: Cause) -> None:
        """No other pod has come in the place of one that was lost, by this cause, with which the attempt ends."""
        self.restarts.refused = f"no pod took the place of {cause['pod']} within {self.launch.replacement_seconds} s"
        self.cause = cause

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
