"""This pod as a member of the gang: its standing call to the hub, by the name in the hostfile that the ranks use, too.

On index 0 the hub is in the same process, and is called like any other, so that its name has resolved there as well.
"""

from __future__ import annotations

import socket
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Callable

from dso_address import own_addresses
from dso_clocks import EXACT_SECONDS
from dso_http import post
from dso_launch import PROTOCOL, Cause, LaunchDocument

if TYPE_CHECKING:
    from dso_round import Round

RETRY_SECONDS = 0.5
INSIST_SECONDS = 5.0
TELL_SECONDS = 1.0  # for what is only told
PATIENT = 2  # failed calls, before the name is resolved anew


class RoundReport:
    """What this pod reports of one round. The next one has a report of its own: what comes late goes with the old one,
    whose number tells the hub to leave it.
    """

    def __init__(self, number: int, phase: str = "Waiting") -> None:
        self.number = number
        self.phase = phase
        self.failure: Cause | None = None  # this pod's
        self.failed_at: float | None = None
        self.left: Cause | None = None  # the first rank of this pod that ended with 0
        self.stepped: bool | None = None  # whether a rank has made an optimizer step; None: nobody could see one
        self.stuck: str | None = None  # what keeps this pod from another round
        self.transport: dict[str, Any] | None = None  # until the hub has it
        self.world: dict[str, Any] | None = None  # likewise
        self.ranks: list[dict[str, Any]] | None = None  # what its ranks printed last, once the hub has asked
        self.hang = 0  # which evidence of a hang the hub has asked for; 0: none
        self.evidence: list[dict[str, Any]] | None = None  # where its ranks stand, until the hub has it

    def take_world(self, world: dict[str, Any] | None) -> None:
        """Goes with the next heartbeat; None is no news."""
        self.world = self.world if world is None else world

    def take(self, phase: str, failure: Cause | None) -> None:
        self.phase, self.failure = phase, failure or self.failure
        if failure and self.failed_at is None:
            self.failed_at = time.monotonic()

    def take_transport(self, report: dict[str, Any]) -> None:
        """Goes with the next heartbeat."""
        self.transport = report


class Member(threading.Thread):
    """What this pod reports goes with the next heartbeat; what the hub answers is kept here, and `wake` called.

    Answers may come in another order than the hub gave them: its numbers only grow, and so do those here.
    """

    def __init__(self, launch: LaunchDocument, wake: Callable[[], None]) -> None:
        super().__init__(name="member", daemon=True)
        self.launch = launch
        self.wake = wake
        # What goes to the hub.
        self.current = RoundReport(launch.round)
        self.describe: Callable[[], list[dict[str, Any]]] = list  # what its ranks printed last: dso_late.ranks_now
        self.current_round: Callable[[], Round | None] = lambda: None  # whose ranks it asks for their pace
        self.stop_seconds = 0.0  # that it took to end the round before
        self.endings: dict[str, Any] | None = None  # how the ranks of the round before ended, until the hub has it
        self.own_addresses = own_addresses()
        self.ahead: float | None = None  # seconds that this pod's clock is ahead of the hub's
        # What comes from the hub.
        self.round = launch.round  # the one that it plays, or will open: whatever is before it is over
        self.opened = 0  # the latest round that it has opened: 0 before the first
        self.finished = self.refused = False
        self.over: Cause | None = None  # why the round before it ended, while it has not opened
        self.cause: Cause | None = None  # why the attempt ends, for the whole gang
        self.rounds: dict[str, Any] | None = None  # the attempt's restarts, as the hub counts them
        self.stepped: bool | None = None  # whether a rank of any pod has made a step in that round
        self.resume_from = ""  # the checkpoint that the ranks of that round go on from, empty for none
        self.registered = 0
        self.hub_node: str | None = None
        self.hub_pod = launch.pod_of(0)
        self.hub = 0  # the number of its pod: that of another one, in the place of a lost one, is greater
        self.record: dict[str, Any] | None = None  # what another hub needs to go on
        self.clocks: dict[str, float] = {}  # dso_clocks.Clocks.apart
        self.parted: float | None = None  # when the hub before this one answered last
        self.failed = 0  # calls in a row
        self.contact = float("-inf")
        self.trouble = ("PeersMissing", "rank 0's agent was not called yet")
        self.addresses: list[Any] = []

    def run(self) -> None:
        while not (self.cause or self.finished):
            try:
                # The first call is not held: it tells that rank 0 is there.
                if self._call(wait=self.contact > float("-inf")):
                    continue
            except Exception:  # such as no thread to be had: whoever is silent is taken for lost
                traceback.print_exc()
            time.sleep(RETRY_SECONDS)

    def report(self, phase: str, failure: Cause | None = None) -> None:
        """Tell the hub at once, beside the standing call; its answer arrives like any other."""
        self.current.take(phase, failure)
        self._tell()

    def begin(self, number: int, stop_seconds: float, endings: dict[str, Any] | None, phase: str) -> RoundReport:
        """Report of this round. "Waiting": nothing of an earlier one, whose ranks ended in this way, is left here."""
        self.stop_seconds, self.endings = stop_seconds, endings
        self.current = RoundReport(number, phase)
        self._tell()
        return self.current

    def tell_endings(self, endings: dict[str, Any]) -> None:
        """Tell the hub, which also ends, how the ranks of this pod have ended."""
        self.endings = endings
        telling = threading.Thread(target=self._call, args=(False,), name="endings", daemon=True)
        telling.start()
        telling.join(TELL_SECONDS)

    def hub_lost(self) -> Cause:
        """Why this pod ends its ranks where rank 0's agent has been silent for too long."""
        launch, where = self.launch, f"pod {self.hub_pod} (host {self.launch.hosts[0]}) on node {self.hub_node}"
        cause = launch.cause("PeerLost", f"no sign of life from {where} for {launch.fence} s", 0)
        return {**cause, "pod": self.hub_pod, "node": self.hub_node}

    def _tell(self) -> None:
        threading.Thread(target=self._insist, name="report", daemon=True).start()

    def _insist(self) -> None:
        until = time.monotonic() + INSIST_SECONDS
        while not self._call(wait=False) and time.monotonic() < until:
            time.sleep(RETRY_SECONDS)

    def _call(self, wait: bool) -> bool:
        launch, host, begun = self.launch, self.launch.hosts[0], time.monotonic()
        current = self.current
        heartbeat = self._heartbeat(current, wait)
        try:
            # An address that answered is kept: with a slow name server rank 0 would take this pod for gone between two
            # calls, and one that is down for a while must not end a training.
            addresses = self._addresses(host)
            asked = time.monotonic()
            status, answer = post(addresses, "/heartbeat", heartbeat, launch.token, launch.hold + 5)
            if status == 200:
                self._accept(answer, addresses, begun)
                if not wait:
                    self._compare_clocks(answer["clock"], time.monotonic() - asked)
                if current.transport is heartbeat["transport"]:
                    current.transport = None
                if self.endings is heartbeat["endings"]:
                    self.endings = None
                if current.world is heartbeat["world"]:
                    current.world = None
                if current.evidence is heartbeat["evidence"]:
                    current.evidence = None
            else:
                self._refuse(answer)
        except socket.gaierror as error:
            self.trouble = ("HostNotResolved", f"host {host} of rank 0 does not resolve: {error.strerror}")
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            # Down, or something else answers there: another pod may have had the address before.
            self.trouble = ("PeersMissing", f"rank 0's agent at {host}:{launch.agent_port} does not answer: {error}")
        else:
            if status == 200:
                return True
        self.failed += 1
        if not self.opened:
            self.addresses = []  # another pod may have it by now
        return False

    def _addresses(self, host: str) -> list[Any]:
        """Of rank 0's agent. Where it does not answer, its pod may be another one; or no name resolves, either."""
        if self.addresses and self.failed < PATIENT:
            return self.addresses
        try:
            return resolve(host, self.launch.agent_port)
        except socket.gaierror:
            if not self.addresses:
                raise
            return self.addresses

    def _accept(self, answer: dict[str, Any], addresses: list[Any], begun: float) -> None:
        if answer["hub"] < self.hub:
            raise ValueError("it is the pod that another one has taken the place of")
        if answer["hub"] > self.hub and self.contact > float("-inf"):
            self.parted = self.contact
        self.hub, self.record, self.failed = answer["hub"], answer["record"], 0
        self.clocks = answer["clocks"]
        self.registered, self.hub_node, self.hub_pod = answer["registered"], answer["node"], answer["pod"]
        # When it was asked, not when it was read: a pod that was frozen in between must find itself lost.
        self.contact = max(self.contact, begun)
        self.addresses, self.refused = addresses, False
        self.finished = self.finished or answer["finished"]
        self.cause = self.cause or answer["cause"]
        if answer["round"] >= self.round:
            self.rounds, self.stepped, self.over = answer["rounds"], answer["stepped"], answer["over"]
            self.resume_from = answer["resumeFrom"]
            self.round = answer["round"]  # the last: what it means has arrived
        before = answer["round"] - 1 if answer["round"] > self.launch.round else 0  # it was open, seen here or not
        self.opened = max(self.opened, answer["round"] if answer["opened"] else before)
        current = self.current
        if answer["asks"] and current.ranks is None and answer["round"] == current.number:
            current.ranks = self.describe()
        if answer["round"] == current.number and answer["hang"] != current.hang:
            current.hang = answer["hang"]
            if current.hang:
                threading.Thread(target=self._inspect, args=(current,), name="evidence", daemon=True).start()
        self.wake()

    def _compare_clocks(self, hubs: float, trip: float) -> None:
        """The hub's clock was read somewhere within the call, which took so many seconds."""
        if trip <= EXACT_SECONDS:
            self.ahead = time.time() - trip / 2 - hubs

    def _inspect(self, current: RoundReport) -> None:
        number, ranks = current.hang, self.current_round()
        found = ranks.inspect() if ranks else []
        if current.hang == number:
            current.evidence = found
            self._insist()

    def _refuse(self, answer: dict[str, Any]) -> None:
        text = f"rank 0's agent at {self.launch.hosts[0]} refused this pod: {answer['refused']}"
        self.trouble, self.refused = ("PeersMissing", text), True
        self.wake()

    def _heartbeat(self, current: RoundReport, wait: bool) -> dict[str, Any]:
        launch, ranks = self.launch, self.current_round()
        return {
            "protocol": PROTOCOL,
            "uid": launch.uid,
            "attempt": launch.attempt,
            "index": launch.index,
            "pod": launch.pod,
            "podUid": launch.pod_uid,
            "node": launch.node,
            "replacement": launch.replacement,
            "fenced": launch.fenced,
            "record": self.record,
            "parted": None if self.parted is None else time.monotonic() - self.parted,
            "addresses": self.own_addresses,
            "ahead": self.ahead,
            "wait": wait,
            "knows": [self.round, self.opened],
            "stopSeconds": self.stop_seconds,
            "endings": self.endings,
            "round": current.number,
            # Before the world: who has finished has reported its world, with this heartbeat or an earlier one.
            "phase": current.phase,
            "cause": current.failure,
            "ago": None if current.failed_at is None else time.monotonic() - current.failed_at,
            "left": current.left,
            "stepped": current.stepped,
            "stuck": current.stuck,
            "transport": current.transport,
            "world": current.world,
            "ranks": current.ranks,
            "pace": ranks.look_at_pace() if ranks and current.phase == "Running" else None,
            "hang": current.hang,
            "evidence": current.evidence,
        }


def resolve(host: str, port: int) -> list[Any]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
