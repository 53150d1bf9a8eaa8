"""`dsjob why`."""

import argparse
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

from deepspeed_operator.cli.job_view import JobView
from deepspeed_operator.cli.kubectl import Kubectl
from deepspeed_operator.cli.kubectl import define as define_job
from deepspeed_operator.cli.paint import painted


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    define_job(parser)
    parser.epilog = "Says where the job is and why, what came before, and the last lines of the rank that failed first."


def run(arguments: argparse.Namespace) -> int:
    """Print the job's story, and return how the command ends."""
    cluster = Kubectl.of(arguments)
    job = cluster.job(arguments.name)
    print("\n".join(story(job, cluster.events(job))))
    return 0


def story(job: JobView, events: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines: where the job is and what to do, what happened in the order of time, and the log's end."""
    state = "Invalid" if job.refused else job.state
    reason = f" ({job.reason})" if job.reason not in {"", state} else ""
    yield painted(f"{job.name} is {state}{reason}", bold=True)
    yield from (f"  {line}" for line in job.message.splitlines()[:1])
    yield from (f"  {line}" for line in (job.errors if job.refused else ()))
    yield from (f"  {line}" for line in _goodput(job.goodput))
    timeline = sorted(_moments(job, events), key=itemgetter(0))
    if timeline:
        yield ""
    yield from (f"  {at}  {words}" for at, words in timeline)
    ranks: Mapping[str, Any] = job.failure.get("ranks") or {}
    if ranks:
        yield ""
        yield from _endings(ranks)
    _, _, log = str(job.failure.get("message", "")).partition("\n")
    if log.strip():
        yield ""
        yield f"The last lines of {_who(job.failure)}:"
        yield from (f"  {line}" for line in log.strip("\n").splitlines())


def _goodput(goodput: Mapping[str, Any]) -> Iterator[str]:
    """Yield where the run's wall time went, the most of it first; nothing before its first step."""
    if "percent" not in goodput:
        return
    spent = sorted(goodput["seconds"].items(), key=itemgetter(1), reverse=True)
    kinds = ", ".join(f"{kind} {seconds:.0f} s" for kind, seconds in spent if seconds >= 1)
    yield f"Goodput {goodput['percent']} %, ETTR {goodput['ettrPercent']} %, until {goodput['until']}: {kinds}."


def _moments(job: JobView, events: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield when what was the case; an event that repeats what an attempt's end says is left out."""
    if job.run_start is not None:
        yield job.run_start, f"run {job.run_id!r} accepted" if job.run_id else "run accepted"
    ends: set[str] = set()
    for ended in job.attempts:
        yield ended.start, f"attempt {ended.number} begins"
        if ended.running is not None:
            yield ended.running, f"attempt {ended.number}: all ranks run"
        words = f": {ended.message}" if ended.message else ""
        ends.add(ended.message or "")
        yield ended.end, f"attempt {ended.number} {ended.outcome}{f' ({ended.reason})' if ended.reason else ''}{words}"
    if job.attempt not in {ended.number for ended in job.attempts} and job.attempt_start is not None:
        yield job.attempt_start, f"attempt {job.attempt} begins"
        if job.running_since is not None:
            yield job.running_since, f"attempt {job.attempt}: all ranks run"
    for event in events:
        words, at = event.get("message", ""), event.get("lastTimestamp") or event.get("firstTimestamp")
        if at and event.get("type") == "Warning" and not any(end and words.startswith(end) for end in ends):
            yield at, f"{event.get('reason', '')}: {words.splitlines()[0] if words else ''}"


def _endings(ranks: Mapping[str, Any]) -> Iterator[str]:
    """Yield how the ranks ended, as status.failure.ranks has it."""
    counts = [(ranks["failed"], "failed"), (ranks["stopped"], "stopped"), (ranks["exited"], "ended with exit code 0")]
    yield f"How the ranks ended: {', '.join(f'{count} {words}' for count, words in counts if count)}"
    yield from (f"  {each}" for each in ranks["first"])
    if ranks["failed"] > len(ranks["first"]):
        yield f"  and {ranks['failed'] - len(ranks['first'])} more"


def _who(failure: Mapping[str, Any]) -> str:
    rank, pod, node = (failure.get(name) for name in ("rank", "pod", "node"))
    who = f"rank {rank}" if rank is not None else "the program"
    return who + (f" in pod {pod}" if pod else "") + (f" on node {node}" if node else "")
