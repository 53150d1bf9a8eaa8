"""Where a program itself tells how far it is: to transformers' KubeflowCallback by HTTP, and by lines of a file.

The callback is that of Kubeflow's Trainer, unchanged: it posts to a server whose address and token it finds in the
environment. Both inputs are offered to rank 0 alone, and never in place of what the container has.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Callable, Iterable, Mapping

from dso_http import Answer, Server, listen
from dso_launch import LaunchDocument
from dso_progress import CALLBACK, SCRIPT, Progress
from dso_ranks import ProcessSpec

FILE = "DEEPSPEED_OPERATOR_PROGRESS"  # the file that a program writes lines to
URL, TOKEN = "KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_SERVER_TOKEN"
PATH = "/progress"
LARGEST = 1 << 20  # of the file: then it begins again
PIECE = 65536
# Their names for what we call step, total and so on.
OF_THE_CALLBACK = {"current_step": "step", "total_steps": "total", "loss": "loss", "learning_rate": "rate"}
OF_A_SCRIPT = {
    "step": "step",
    "totalSteps": "total",
    "loss": "loss",
    "learningRate": "rate",
    "samplesPerSecond": "samples",
    "tokensPerSecond": "tokens",
}


class CallbackService:
    """The application of a dso_http.Server on a loopback address, whose thread calls all of this."""

    hold = 1.0

    def __init__(self, current: Callable[[], Progress]) -> None:
        """`current` is the progress of the round that goes on."""
        self.current = current
        self.token = os.urandom(16).hex()  # other containers of the pod, or of the node, reach the port, too
        self.url = ""

    def start(self) -> None:
        """Listen, on a port that nobody else has. Raises OSError."""
        listener = listen("127.0.0.1", 0, 16)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}{PATH}"
        Server(listener, self).start()

    def answer(self, path: str, body: dict[str, Any], host: str) -> Answer:
        if path != PATH:
            return self.stranger(path, host)
        self.current().take(CALLBACK, facts_of(body), time.monotonic())
        return 200, {}

    def stranger(self, path: str, host: str) -> tuple[int, Any]:  # noqa: ARG002
        return (403 if path == PATH else 404), {}

    def probed(self) -> Answer:
        return 404, {}

    def held(self, body: dict[str, Any], late: bool) -> Answer:  # noqa: ARG002
        return 404, {}

    def sent(self, body: dict[str, Any], answer: Any) -> None:
        pass

    def changed(self, now: float) -> bool:  # noqa: ARG002
        return False


def facts_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a TrainJob's status says. At the end of the training it has no step, and its own estimate of the time left
    is wrong after a resume. Raises LookupError, TypeError or AttributeError for another object.
    """
    metrics = {each["name"]: each["value"] for each in body["trainerStatus"].get("metrics") or ()}
    return {ours: metrics[theirs] for theirs, ours in OF_THE_CALLBACK.items() if theirs in metrics}


def has_proxy(environment: Mapping[str, str]) -> bool:
    """Whether Python would call even this machine through a proxy, which may keep each call for five seconds."""
    if not any(environment.get(name) for name in ("http_proxy", "HTTP_PROXY")):
        return False
    spared = (environment.get("no_proxy") or environment.get("NO_PROXY") or "").replace(" ", "").split(",")
    return not {"127.0.0.1", "*"} & set(spared)


class ProgressInput:
    """What one round's rank 0 is offered, in the directory of the hook."""

    def __init__(self, launch: LaunchDocument, directory: str | None) -> None:
        """`directory`: None where nothing can be written."""
        self.head = launch.index == 0
        self.directory = directory if self.head else None
        self.path = os.path.join(directory, "progress.jsonl") if directory and self.head else os.devnull
        self.read_to = 0
        if self.directory:
            with contextlib.suppress(OSError):
                os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))

    def install(self, specs: Iterable[ProcessSpec], callback: CallbackService | None) -> None:
        """`callback`: None where none listens."""
        for spec in specs:
            first = self.head and not spec.rank
            spec.environment.setdefault(FILE, self.path if first else os.devnull)
            given = {URL, TOKEN} & set(spec.environment) or has_proxy(spec.environment)
            if first and callback and self.directory and not given:
                spec.environment.update({URL: callback.url, TOKEN: self.keep(callback.token)})

    def keep(self, token: str) -> str:
        """Write the token for this user alone, and return the file's path. Raises OSError."""
        path = os.path.join(self.directory or "", "progress-token")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
            file.write(token)
        return path

    def look(self, progress: Progress) -> None:
        """At the lines that a program has written since."""
        if not self.directory:
            return
        with contextlib.suppress(OSError):  # the program has removed it
            for line in self.lines():
                with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):  # it is no such object
                    said = json.loads(line)
                    facts = {ours: said[theirs] for theirs, ours in OF_A_SCRIPT.items() if theirs in said}
                    progress.take(SCRIPT, facts, time.monotonic())

    def lines(self) -> list[bytes]:
        """Those that came since. Raises OSError."""
        with open(self.path, "r+b") as file:
            if os.fstat(file.fileno()).st_size < self.read_to:
                self.read_to = 0  # it was opened to be written from its beginning
            file.seek(self.read_to)
            piece = file.read(PIECE)
            text, newline, rest = piece.rpartition(b"\n")
            self.read_to += len(piece) - (len(rest) if newline or len(piece) < PIECE else 0)
            if self.read_to > LARGEST:
                file.truncate(0)  # whoever appends begins anew
                self.read_to = 0
        return text.splitlines()
