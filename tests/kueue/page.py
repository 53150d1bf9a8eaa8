"""docs/kueue-shown.md: what was read of a job and its Workload, a row for each moment, of the last run that saw it."""

import re
from pathlib import Path

from tests.faults.jobs import Json
from tests.kueue.queues import Queue

PAGE = Path(__file__).parents[2] / "docs" / "kueue-shown.md"
HEAD = """# What a real Kueue makes of jobs, and jobs of it

`make kueue-full` has written this page: Kueue 0.17.0 with the webhooks of its own kinds, on the API server of the
tests' cluster, with an operator process and simulated nodes, which end deleted pods at once. A queue has quota for the
two pods of one job. Each row is what was read of one job at that moment:

* **state** and **phase** of its status, with the reason where it does not run, and the number of its **pods**;
* **Workload**: its conditions that hold, with their reasons, and `QuotaReserved` where it does not;
* **attempts before**: how they ended, with Kueue's reason.

| moment | state | phase | pods | Workload | attempts before |
|---|---|---|---|---|---|
"""
MOMENTS = (
    "it runs",
    "another job has the quota",
    "that has ended: its turn",
    "complete",
    "one of higher priority takes the quota, and a pod still ends",
    "the one of higher priority meanwhile",
    "the last pod has ended",
    "its turn again",
    "suspended while it waited",
    "suspended while it ran",
    "resumed, and another one has the quota",
    "its pods were not ready in time; its turn again",
    "the queue is stopped",
    "its Workload is deactivated",
    "its Workload was deleted while it ran; its turn again",
    "a lost pod was replaced",
    "Kueue is down, and it asks for its turn",
    "Kueue is down, and it has ended",
    "Kueue is up again",
    "Kueue was removed, and put back: its turn again",
    "a Workload of somebody else's, which its label names",
    "512 nodes, and too little quota",
)


def see(queue: Queue, job: str, moment: str) -> None:
    """Put what is true of the job now into the page, and leave the other rows."""
    status, workload = queue.jobs.status(job), queue.workload(job)
    attempt = status.get("attempt", {})
    why = attempt.get("obstacle", {}).get("reason", "")
    phase = attempt.get("phase", "–")
    ended = ", ".join(_ended(each) for each in status.get("attempts", [])) or "–"
    cells = [
        moment,
        status.get("state", "–"),
        f"{phase}: {why}" if why and why != phase else phase,
        str(len(queue.jobs.pods_of(job))),
        _conditions(workload),
        ended,
    ]
    rows = _rows()
    rows[moment] = f"| {' | '.join(cells)} |\n"
    PAGE.write_text(HEAD + "".join(rows[each] for each in MOMENTS if each in rows))


def _conditions(workload: Json | None) -> str:
    if workload is None:
        return "none"
    conditions: list[Json] = workload.get("status", {}).get("conditions", [])
    held = sorted(_named(each) for each in conditions if each["status"] == "True" or each["type"] == "QuotaReserved")
    return ", ".join(held) or "nothing said"


def _named(condition: Json) -> str:
    kind, reason = condition["type"], condition["reason"]
    name = kind if condition["status"] == "True" else f"not {kind}"
    return name if reason == kind else f"{name} ({reason})"


def _ended(attempt: Json) -> str:
    why = re.search(r"\(([^:)]+)", attempt.get("message", ""))
    what = re.sub(r"Workload \S+", "Workload", why[1]) if why is not None else attempt.get("reason")
    return f"{attempt['outcome']} ({what})" if what else attempt["outcome"]


def _rows() -> dict[str, str]:
    if not PAGE.exists():
        return {}
    lines = [line for line in PAGE.read_text().splitlines(keepends=True) if line.startswith("| ")][1:]
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines}
