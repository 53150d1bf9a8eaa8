"""The table of all jobs: what of each is shown, on a terminal and elsewhere."""

from collections.abc import Sequence
from datetime import datetime

from deepspeed_operator.cli.figures import scaled, steps, until
from deepspeed_operator.cli.job_view import JobView

COLUMNS = ("NAMESPACE", "NAME", "STATE", "NODES", "STEP", "PROGRESS", "ETA", "LOSS", "TOKENS/S", "RESTARTS")
# Where a line has no room for the whole words.
NARROW = ("NAMESPACE", "NAME", "STATE", "NODES", "STEP", "DONE", "ETA", "LOSS", "TOK/S", "RST")


def state(job: JobView) -> str:
    """Return where a job is; what spec asks for counts, whatever becomes of a run before."""
    return "Invalid" if job.refused else job.state


def row(job: JobView, now: datetime) -> tuple[str, ...]:
    """Return what the columns show of a job; empty is what is not known, or not any more."""
    known = job.progress
    moves = not known.get("stale") and not job.finished
    return (
        job.namespace,
        job.name,
        state(job),
        str(job.nodes),
        steps(known.get("step"), known.get("totalSteps")),
        known.get("summary", ""),
        until(known.get("eta"), now) if moves else "",
        known.get("loss", ""),
        scaled(known.get("tokensPerSecond")) if moves else "",
        str(job.restarts),
    )


def plain(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as kubectl prints one."""
    widths = [max(len(line[at]) for line in (headings, *rows)) for at in range(len(headings))]
    return "\n".join(
        "   ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (headings, *rows)
    )
