"""This pod as a member of the gang: its standing call to the hub, by the name in the hostfile that the ranks use, too.

On index 0 the hub is in the same process, and is called like any other, so that its name has resolved there as well.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any, Callable

from dso_address import own_addresses
from dso_http import post
from dso_launch import PROTOCOL, Cause, LaunchDocument

RETRY_SECONDS = 0.5
INSIST_SECONDS = 5.0


class Member(threading.Thread):
    """What this pod reports goes with the next heartbeat; what the hub answers is kept here, and `wake` called."""

    def __init__(self, launch: LaunchDocument, wake: Callable[[], None]) -> None:
        super().__init__(name="member", daemon=True)
        self.launch = launch
        self.wake = wake
        # What goes to the hub.
        self.phase = "Waiting"
        self.failure: Cause | None = None  # this pod's
        self.left: Cause | None = None  # the first rank of this pod that ended with 0
        self.own_addresses = own_addresses()
        self.transport: dict[str, Any] | None = None  # until the hub has it
        self.world: dict[str, Any] | None = None  # likewise
        # What comes from the hub.
        self.round: int | None = None  # that it has opened
        self.finished = self.refused = False
        self.cause: Cause | None = None  # why the round ends, for the whole gang
        self.registered = 0
        self.hub_node: str | None = None
        self.contact = float("-inf")
        self.trouble = ("PeersMissing", "rank 0's agent was not called yet")
        self.addresses: list[Any] = []

    def run(self) -> None:
        while not (self.cause or self.finished):
            # The first call is not held: it tells that rank 0 is there.
            if not self._call(wait=self.contact > float("-inf")):
                time.sleep(RETRY_SECONDS)

    def report(self, phase: str, failure: Cause | None = None) -> None:
        """Tell the hub at once, beside the standing call; its answer arrives like any other."""
        self.phase, self.failure = phase, failure or self.failure
        threading.Thread(target=self._insist, name="report", daemon=True).start()

    def report_transport(self, report: dict[str, Any]) -> None:
        """Goes with the next heartbeat."""
        self.transport = report

    def report_world(self, report: dict[str, Any]) -> None:
        """Likewise."""
        self.world = report

    def _insist(self) -> None:
        until = time.monotonic() + INSIST_SECONDS
        while not self._call(wait=False) and time.monotonic() < until:
            time.sleep(RETRY_SECONDS)

    def _call(self, wait: bool) -> bool:
        launch, host, begun = self.launch, self.launch.hosts[0], time.monotonic()
        heartbeat = self._heartbeat(wait)
        try:
            # An address that answered is kept: with a slow name server rank 0 would take this pod for gone between two
            # calls, and one that is down for a while must not end a training.
            addresses = self.addresses or resolve(host, launch.agent_port)
            status, answer = post(addresses, "/heartbeat", heartbeat, launch.token, launch.hold + 5)
            if status == 200:
                self._accept(answer, addresses, begun)
                if self.transport is heartbeat["transport"]:
                    self.transport = None
                if self.world is heartbeat["world"]:
                    self.world = None
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
        if self.round is None:
            self.addresses = []  # another pod may have it by now
        return False

    def _accept(self, answer: dict[str, Any], addresses: list[Any], begun: float) -> None:
        self.registered, self.hub_node = answer["registered"], answer["node"]
        # When it was asked, not when it was read: a pod that was frozen in between must find itself lost.
        self.contact = max(self.contact, begun)
        self.addresses, self.refused = addresses, False
        if answer["round"] is not None and self.round is None:
            self.round = answer["round"]
            self.phase = "Running" if self.phase == "Waiting" else self.phase
        self.finished = self.finished or answer["finished"]
        self.cause = self.cause or answer["cause"]
        self.wake()

    def _refuse(self, answer: dict[str, Any]) -> None:
        text = f"rank 0's agent at {self.launch.hosts[0]} refused this pod: {answer['refused']}"
        self.trouble, self.refused = ("PeersMissing", text), True
        self.wake()

    def _heartbeat(self, wait: bool) -> dict[str, Any]:
        launch = self.launch
        return {
            "protocol": PROTOCOL,
            "uid": launch.uid,
            "attempt": launch.attempt,
            "index": launch.index,
            "pod": launch.pod,
            "podUid": launch.pod_uid,
            "node": launch.node,
            "round": self.round,
            # Before the world: who has finished has reported its world, with this heartbeat or an earlier one.
            "phase": self.phase,
            "cause": self.failure,
            "left": self.left,
            "addresses": self.own_addresses,
            "wait": wait,
            "transport": self.transport,
            "world": self.world,
        }


def resolve(host: str, port: int) -> list[Any]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
