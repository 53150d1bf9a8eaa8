"""`dsjob logs`."""

import argparse
import re
import sys
import threading
import time
from dataclasses import dataclass
from typing import Final

from deepspeed_operator.cli import kubectl
from deepspeed_operator.cli.gateway import Gateway
from deepspeed_operator.cli.job_view import JobView
from deepspeed_operator.cli.kubectl import ClusterError, GoneError, Kubectl
from deepspeed_operator.cli.kubectl import define as define_job
from deepspeed_operator.cli.log_streams import LogStreams
from deepspeed_operator.cli.numbers import within
from deepspeed_operator.cli.pod_log import TrainerPod

NOT_ALL: Final = 2
# As the agent writes it; rank 0's own lines have no prefix.
_LINE: Final = re.compile(rb"(?:\[rank (?P<rank>\d+)\] )?(?P<text>.*)", re.S)
_OF_THE_AGENT: Final = b"[deepspeed-operator] "
_LAST_LOOK_SECONDS: Final = 60.0


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    define_job(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rank", type=within(0, 10_000_000), metavar="N", help="of this rank alone")
    which.add_argument("--failed", action="store_true", help="of the rank that failed first, in its attempt")
    parser.add_argument(
        "--attempt", type=within(1, 10**9), metavar="K", help="of this attempt, as far as its pods are still there"
    )
    parser.add_argument("--tail", type=within(0, 10**9), metavar="LINES", help="of each pod so many lines at most")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on until the job ends, also with the pods that follow"
    )
    parser.epilog = (
        "The lines of all ranks as they come, each with its rank before it; those of the agents with the pod. Ends "
        "with 2 if the log of a pod that is there could not be read to its end."
    )


@dataclass(frozen=True, slots=True)
class LogSelection:
    """Whose lines are shown: of attempts from `first` to `last` (None: the newest), and of one rank (None: of all)."""

    first: int
    last: int | None
    rank: int | None

    def has(self, pod: TrainerPod, slots: int) -> bool:
        """Whether lines of this pod, in which so many ranks run, may be among them."""
        of_attempt = self.first <= pod.attempt and (self.last is None or pod.attempt <= self.last)
        return of_attempt and (self.rank is None or pod.index == self.rank // slots)


def run(arguments: argparse.Namespace) -> int:
    """Print the logs, and return how the command ends."""
    cluster, rank, attempt = Kubectl.of(arguments), arguments.rank, arguments.attempt
    job = cluster.job(arguments.name)
    if arguments.failed:
        rank, attempt = _failed(job, attempt)
    if not arguments.follow:
        attempt = attempt or job.attempt
    selection = LogSelection(attempt or job.attempt, attempt, rank)
    pods = [pod for pod in map(TrainerPod.of, cluster.pods_of(job)) if selection.has(pod, job.slots)]
    if attempt is not None and not any(pod.started for pod in pods):
        raise ClusterError(f"attempt {attempt} of {job.name} has no pods any more, or none that has started yet")

    writing = threading.Lock()

    def show(pod: TrainerPod, line: bytes) -> None:
        shown = shown_line(line, pod, rank)
        if shown is not None:
            with writing:
                sys.stdout.buffer.write(shown)
                sys.stdout.buffer.flush()

    with Gateway(cluster) as gateway:
        streams = LogStreams(gateway, show, dict.fromkeys((pod.uid for pod in pods), arguments.tail))
        if arguments.follow:
            try:
                _follow(cluster, job, selection, streams)
            finally:
                kubectl.end_watches()
        else:
            for pod in sorted(pods, key=lambda pod: (pod.index, pod.name)):
                streams.read_once(pod)
    return NOT_ALL if streams.incomplete else 0


def _failed(job: JobView, attempt: int | None) -> tuple[int | None, int]:
    rank, pod = job.failure.get("rank"), job.failure.get("pod")
    if pod is None:
        raise ClusterError(f"{job.name} has no failed rank that is known: it is {job.state}")
    return rank, attempt or int(str(pod).removeprefix(f"{job.name}-").split("-")[0])


def _follow(cluster: Kubectl, job: JobView, selection: LogSelection, streams: LogStreams) -> None:
    """Follow the chosen pods, also those yet to come, until the job is over, and no attempt of the selection to come.

    Raises GoneError where the job was deleted, once all that its pods wrote is shown.
    """
    slots, looks, deleted = job.slots, False, None

    def look() -> None:
        for kind, body in cluster.watch_pods(job):
            pod = TrainerPod.of(body)
            if selection.has(pod, slots):
                streams.note(pod, gone=kind == "DELETED")

    try:
        for seen in cluster.watch(job.name, None):
            slots = seen.slots
            if seen.attempt and not looks:  # before, it is not known which ranks a pod has
                threading.Thread(target=look, daemon=True).start()
                looks = True
            if seen.over or (selection.last is not None and seen.attempt > selection.last):
                break
    except GoneError as error:
        deleted = error
    for pod in _last_pods(cluster, job):
        if selection.has(pod, slots):
            streams.note(pod)
    streams.drain()
    if deleted is not None:
        raise deleted
    if not streams.begun:
        raise ClusterError(f"{job.name} has come to its end, and has no pods any more")


def _last_pods(cluster: Kubectl, job: JobView) -> list[TrainerPod]:
    """Return the pods of a job that gets no more of them: the watch may not have told of all yet."""
    until = time.monotonic() + _LAST_LOOK_SECONDS
    while True:
        try:
            return [TrainerPod.of(body) for body in cluster.pods_of(job)]
        except ClusterError:
            if time.monotonic() > until:
                raise
        time.sleep(kubectl.AGAIN_SECONDS)


def shown_line(line: bytes, pod: TrainerPod, rank: int | None) -> bytes | None:
    """Return how a line of a pod is shown; None if it is another rank's than `rank` (None: of all)."""
    if line.startswith(_OF_THE_AGENT):
        return b"[%s] %s" % (pod.name.encode(), line)
    parts = _LINE.fullmatch(line)
    assert parts is not None, "all of it is optional"
    number = int(parts["rank"]) if parts["rank"] is not None else 0 if pod.index == 0 else None
    if rank is not None:
        return parts["text"] if number == rank else None
    return line if parts["rank"] is not None or number is None else b"[rank 0] " + line
