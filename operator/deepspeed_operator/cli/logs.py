"""`dsjob logs`."""

import argparse
import re
import subprocess
import sys
import threading
from typing import IO, Final

from deepspeed_operator.api.names import LABEL_ATTEMPT, LABEL_JOB_NAME
from deepspeed_operator.cli.job_view import JobView
from deepspeed_operator.cli.kubectl import ClusterError, Kubectl
from deepspeed_operator.cli.kubectl import define as define_job
from deepspeed_operator.cli.numbers import within

_MOST_PODS: Final = 10_000
# As `kubectl logs --prefix` and the agent write them; rank 0's own lines have no prefix of the agent's.
# A pod in the place of a lost one has the number of its replacement behind the name of that one.
_LINE: Final = re.compile(
    rb"\[pod/(?P<pod>(?P<place>[^/\]]+?)(?:-r\d+)?)/[^\]]*\] (?P<words>(?:\[rank (?P<rank>\d+)\] )?(?P<text>.*))", re.S
)
_OF_THE_AGENT: Final = b"[deepspeed-operator] "


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
    parser.add_argument("-f", "--follow", action="store_true", help="go on, also with the attempts that follow")
    parser.epilog = (
        "The lines of all ranks as they come, each with its rank before it; those of the agents with the pod."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the logs, and return how the command ends."""
    cluster, rank, attempt = Kubectl.of(arguments), arguments.rank, arguments.attempt
    job = cluster.job(arguments.name)
    if arguments.failed:
        rank, attempt = _failed(job, attempt)
    options = [*([] if arguments.tail is None else [f"--tail={arguments.tail}"]), *(["-f"] if arguments.follow else [])]
    if attempt is not None or not arguments.follow:
        _print_attempt(cluster, job, attempt or job.attempt, rank, options)
        return 0
    attempt = 0
    while (started := _started_after(cluster, job.name, attempt)) is not None:
        attempt = started.attempt
        _print_attempt(cluster, started, attempt, rank, options)
    return 0


def _started_after(cluster: Kubectl, name: str, attempt: int) -> JobView | None:
    """Wait for an attempt after this one whose pods have all started, and return the job; None if it ends before."""
    for job in cluster.watch(name, None):
        if job.attempt > attempt and job.phase not in {"Queued", "Starting", "Refused"}:
            return job
        if job.finished or job.refused:
            return None
    raise AssertionError("a watch ends with an exception alone")


def _failed(job: JobView, attempt: int | None) -> tuple[int | None, int]:
    rank, pod = job.failure.get("rank"), job.failure.get("pod")
    if pod is None:
        raise ClusterError(f"{job.name} has no failed rank that is known: it is {job.state}")
    return rank, attempt or int(str(pod).removeprefix(f"{job.name}-").split("-")[0])


def _print_attempt(cluster: Kubectl, job: JobView, attempt: int, rank: int | None, options: list[str]) -> None:
    """Print what the attempt's pods have written, until they end where it is followed; raises ClusterError."""
    if not cluster.pods(job.name, attempt):
        raise ClusterError(f"attempt {attempt} of {job.name} has no pods any more, or none yet")
    selector = f"--selector={LABEL_JOB_NAME}={job.name},{LABEL_ATTEMPT}={attempt}"
    common = ["--prefix", "--ignore-errors", f"--max-log-requests={_MOST_PODS}", "--tail=-1", *options]
    of_rank = None if rank is None else f"{job.name}-{attempt}-{rank // job.slots}"
    with subprocess.Popen(
        cluster.command("logs", selector, *common), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        words: list[bytes] = []
        threading.Thread(target=_collect, args=(reading.stderr, words), daemon=True).start()
        for line in reading.stdout:
            shown = shown_line(line, f"{job.name}-{attempt}-0", of_rank, rank)
            if shown is not None:
                sys.stdout.buffer.write(shown)
                sys.stdout.buffer.flush()
    if reading.returncode:
        raise ClusterError(b"".join(words).decode(errors="replace").strip() or "kubectl logs ended with an error")


def shown_line(line: bytes, first_pod: str, of_rank: str | None, rank: int | None) -> bytes | None:
    """Return how a line of `kubectl logs --prefix` is shown; None if it is another rank's than `rank` (None: of all).

    `of_rank` is the pod of the rank, and `first_pod` that of rank 0, whose lines have no prefix in its log.
    """
    parts = _LINE.fullmatch(line)
    if parts is None:  # kubectl's own
        return line if rank is None else None
    place, words = parts["place"].decode(), parts["words"]
    if words.startswith(_OF_THE_AGENT):
        return b"[%s] %s" % (parts["pod"], words) if rank is None or place == of_rank else None
    number = int(parts["rank"]) if parts["rank"] is not None else 0 if place == first_pod else None
    if rank is not None:
        return parts["text"] if number == rank else None
    return words if parts["rank"] is not None or number is None else b"[rank 0] " + words


def _collect(stream: IO[bytes], into: list[bytes]) -> None:
    into.extend(stream)
