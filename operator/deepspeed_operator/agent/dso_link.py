"""This agent's standing call to rank 0's agent; on index 0 that is itself, by the name that the ranks will use."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any, Callable

from dso_address import own_addresses
from dso_http import post
from dso_plan import PROTOCOL, Cause, Plan

RETRY_SECONDS = 0.5
TELL_SECONDS = 5.0


class Link(threading.Thread):
    def __init__(self, plan: Plan, wake: Callable[[], None]) -> None:
        super().__init__(name="link", daemon=True)
        self.plan = plan
        self.wake = wake
        self.phase = "Waiting"
        self.report: Cause | None = None
        self.left: Cause | None = None  # the first rank of this pod that ended with 0
        self.own_addresses = own_addresses()
        self.released = self.finished = self.refused = False
        self.verdict: Cause | None = None
        self.registered = 0
        self.hub_node: str | None = None
        self.contact = float("-inf")
        self.trouble = ("PeersMissing", "rank 0's agent was not called yet")
        self.addresses: list[Any] = []
        self.transport: dict[str, Any] | None = None  # news for rank 0's agent
        self.world: dict[str, Any] | None = None  # likewise

    def run(self) -> None:
        while not (self.verdict or self.finished):
            # The first call is not held: it tells that rank 0 is there.
            if not self._call(wait=self.contact > float("-inf")):
                time.sleep(RETRY_SECONDS)

    def tell(self, phase: str, report: Cause | None = None) -> None:
        """Says so at once, beside the standing call; rank 0's answer arrives like any other."""
        self.phase, self.report = phase, report or self.report
        threading.Thread(target=self._insist, name="tell", daemon=True).start()

    def report_transport(self, report: dict[str, Any]) -> None:
        """Goes with the next call."""
        self.transport = report

    def report_world(self, report: dict[str, Any]) -> None:
        """Likewise."""
        self.world = report

    def _insist(self) -> None:
        until = time.monotonic() + TELL_SECONDS
        while not self._call(wait=False) and time.monotonic() < until:
            time.sleep(RETRY_SECONDS)

    def _call(self, wait: bool) -> bool:
        plan, host, begun = self.plan, self.plan.hosts[0], time.monotonic()
        # The phase comes first: who has finished has told of its world, with this call or before.
        phase, news, world = self.phase, self.transport, self.world
        try:
            # An address that answered is kept: with a slow name server rank 0 would take this pod for gone between two
            # calls, and one that is down for a while must not end a training.
            addresses = self.addresses or resolve(host, plan.agent_port)
            message = self._message(wait, phase, news, world)
            status, answer = post(addresses, "/beat", message, plan.token, plan.beat + 5)
            if status == 200:
                self._accept(answer, addresses, begun)
                if self.transport is news:
                    self.transport = None
                if self.world is world:
                    self.world = None
            else:
                self._refuse(answer)
        except socket.gaierror as error:
            self.trouble = ("HostNotResolved", f"host {host} of rank 0 does not resolve: {error.strerror}")
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            # Down, or something else answers there: another pod may have had the address before.
            self.trouble = ("PeersMissing", f"rank 0's agent at {host}:{plan.agent_port} does not answer: {error}")
        else:
            if status == 200:
                return True
        if not self.released:
            self.addresses = []  # another pod may have it by now
        return False

    def _accept(self, answer: dict[str, Any], addresses: list[Any], begun: float) -> None:
        self.registered, self.hub_node = answer["registered"], answer["node"]
        # When it was asked, not when it was read: a pod that was frozen in between must find itself lost.
        self.contact = max(self.contact, begun)
        self.addresses, self.refused = addresses, False
        if answer["released"] and not self.released:
            self.released = True
            self.phase = "Running" if self.phase == "Waiting" else self.phase
        self.finished = self.finished or answer["finished"]
        self.verdict = self.verdict or answer["cause"]
        self.wake()

    def _refuse(self, answer: dict[str, Any]) -> None:
        text = f"rank 0's agent at {self.plan.hosts[0]} refused this pod: {answer['refused']}"
        self.trouble, self.refused = ("PeersMissing", text), True
        self.wake()

    def _message(
        self, wait: bool, phase: str, news: dict[str, Any] | None, world: dict[str, Any] | None
    ) -> dict[str, Any]:
        plan = self.plan
        return {
            "protocol": PROTOCOL,
            "uid": plan.uid,
            "attempt": plan.attempt,
            "index": plan.index,
            "pod": plan.pod,
            "podUid": plan.pod_uid,
            "node": plan.node,
            "phase": phase,
            "cause": self.report,
            "left": self.left,
            "addresses": self.own_addresses,
            "wait": wait,
            "transport": news,
            "world": world,
        }


def resolve(host: str, port: int) -> list[Any]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
