"""`dsjob watch`."""

import argparse
import json
import math
import re
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console, RenderableType

from deepspeed_operator.cli.asking import AgentPod, agent_pods
from deepspeed_operator.cli.job_view import JobView
from deepspeed_operator.cli.kubectl import ClusterError, GoneError, Kubectl
from deepspeed_operator.cli.kubectl import define as define_job
from deepspeed_operator.cli.numbers import positive
from deepspeed_operator.cli.screen import can_draw, follow
from deepspeed_operator.cli.watch_frame import AgentAnswers, Moment, frame

_AGENTS_ANSWER: Final = frozenset({"Starting", "Running", "Replacing"})
_AT_ONCE: Final = 16
_MOST_PODS: Final = 64  # whose ranks are asked: each answer takes the pod a little of its time
_TAIL: Final = 8
_KEPT: Final = 1000  # losses
_PLAIN_COLUMNS: Final = 100
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    define_job(parser)
    parser.add_argument("--interval", type=positive, default=5.0, metavar="SECONDS", help="between two looks; else 5")
    parser.epilog = (
        "On a terminal the job is drawn again until Ctrl-C, or until it is deleted; elsewhere it is printed once. What "
        "the ranks do is told by the agents in the pods, for which you need the right to exec."
    )


def run(arguments: argparse.Namespace) -> int:
    """Show the job, and return how the command ends."""
    watch = _Watch(Kubectl.of(arguments), arguments.name)
    if can_draw():
        return follow(lambda console: watch.look(console.width), arguments.interval)
    console = Console(color_system=None, force_terminal=False, width=_PLAIN_COLUMNS, highlight=False)
    with console.capture() as captured:
        console.print(watch.look(_PLAIN_COLUMNS))
    print(*(line.rstrip() for line in captured.get().splitlines()), sep="\n")
    return 0


class _Watch:
    """One job, and what was seen of it so far."""

    def __init__(self, cluster: Kubectl, name: str) -> None:
        self._cluster, self._name = cluster, name
        self._uid = ""
        self._losses: deque[tuple[int, float]] = deque(maxlen=_KEPT)
        self._pool = ThreadPoolExecutor(_AT_ONCE)

    def look(self, width: int) -> RenderableType:
        """Ask for all that is shown, at once, and return the picture; raises ClusterError."""
        job = self._cluster.job(self._name)
        if self._uid not in {"", job.uid}:
            raise GoneError(f"DeepSpeedJob {job.name} was deleted, and another of its name made")
        self._uid = job.uid
        pods = agent_pods(self._cluster, job) if job.attempt else []
        events = self._pool.submit(self._cluster.events, job)
        lines = self._pool.submit(self._lines, pods[0]) if pods and not pods[0].index else None
        ranks = self._ranks(pods if job.phase in _AGENTS_ANSWER else [])
        self._note(job, ranks)
        return frame(
            Moment(
                job=job,
                ranks=ranks,
                losses=[loss for _, loss in self._losses],
                events=events.result(),
                lines=lines.result() if lines is not None else (),
                now=datetime.now(UTC),
            ),
            width,
        )

    def _ranks(self, pods: list[AgentPod]) -> AgentAnswers:
        answers = list(self._pool.map(self._state, pods[:_MOST_PODS]))
        states = tuple(each for each in answers if not isinstance(each, str))
        return AgentAnswers(states, len(pods), next((each for each in answers if isinstance(each, str)), ""))

    def _state(self, pod: AgentPod) -> Mapping[str, Any] | str:
        """Return what a pod's agent tells, or why it does not."""
        try:
            return json.loads(pod.asked(self._cluster, "state"))
        except (ClusterError, ValueError) as error:
            return f"{pod.name}: {error}"

    def _lines(self, pod: AgentPod) -> list[str]:
        """Return the last lines of rank 0, without what would move a terminal's cursor."""
        try:
            text = self._cluster.output("logs", pod.name, f"--container={pod.container}", f"--tail={_TAIL}")
        except ClusterError:
            return []  # it has not started yet, or is gone
        return [_CONTROL.sub("", line.rpartition("\r")[2]) for line in text.rstrip("\n").split("\n")]

    def _note(self, job: JobView, ranks: AgentAnswers) -> None:
        told = ranks.progress or job.progress
        step, loss = told.get("step"), told.get("loss")
        if step is None or loss is None or (self._losses and self._losses[-1][0] == step):
            return
        with suppress(ValueError):
            value = float(loss)
            if math.isfinite(value):  # the others have no height
                self._losses.append((step, value))
