"""What the agent answers over HTTP: heartbeats to members, the state to the operator, little to strangers."""

from __future__ import annotations

import time
from typing import Any

from dso_http import Answer
from dso_pod import Pod

STRANGER = "it does not know the token of the attempt that runs here"


class Service:
    """The application of dso_http.Server, whose thread calls all of this; of the pod it only reads."""

    def __init__(self, pod: Pod) -> None:
        self.pod, self.hub = pod, pod.hub
        self.hold, self.token = pod.launch.hold, pod.launch.token
        self.stage: tuple[int, bool, bool, bool, int] | None = None  # of the hub, as it was last seen

    def probed(self) -> Answer:
        phase = self.pod.phase
        # Before the first round nothing is wrong yet.
        undecided = phase in ("Waiting", "Preflight") and self.pod.round.number == self.pod.launch.round
        return None if undecided else (200 if phase == "Running" else 503, {"phase": phase})

    def stranger(self, path: str, host: str) -> tuple[int, Any]:
        if path in ("/livez", "/state"):
            return 200, {"phase": self.pod.phase}
        if path == "/heartbeat":
            if self.hub:
                self.hub.note_refusal(host, STRANGER, time.monotonic())
            return 403, {"refused": STRANGER}
        return 404, {"error": "no such path"}

    def answer(self, path: str, body: dict[str, Any], host: str) -> Answer:
        if path == "/heartbeat" and self.hub:
            status, reply = self.hub.heartbeat(body, time.monotonic())
            if "refused" in reply:
                self.hub.note_refusal(host, reply["refused"], time.monotonic())
            held = status == 200 and body["wait"] and not self.hub.is_news(body)
            return None if held else (status, reply)
        if path == "/state":
            return 200, self.pod.state()
        return self.stranger(path, host)

    def held(self, body: dict[str, Any], late: bool) -> Answer:
        assert self.hub
        return (200, self.hub.reply(body)) if late or self.hub.is_news(body) else None

    def sent(self, body: dict[str, Any], answer: Any) -> None:
        if self.hub and "finished" in answer:
            self.hub.sent(body, answer)

    def changed(self, now: float) -> bool:
        if not self.hub:
            return False
        self.hub.check(now)
        before, self.stage = self.stage, self.hub.stage()
        return before != self.stage
