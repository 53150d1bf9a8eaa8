"""docs/faults.md: one row for each fault, of the last run that tried it."""

from pathlib import Path

from tests.survival.faults import FAULTS
from tests.survival.measured import Measured

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
HEAD = """# What a failure costs

`make faults-full` has written this page, on the cluster of two nodes that the tests make on one machine of two
processors. A job of two pods with one rank each makes a step every 0.25 s, saves after each, and goes on from what it
has saved. Then something happens to its second pod, or to its first (rank 0's) where that is said. The columns:

* **restarts**: counted against `maxRestarts` (user) and `maxInfrastructureRestarts` (infrastructure); **reason**: as
  status and events tell it.
* **end**: what the job came to; without the fault it is Complete.
* **unintended**: lines that a rank wrote into the shared file after the first one of the ranks that follow it;
  **orphans**: processes that are left on the nodes; **lost**: results of a run that had made its last step.
* seconds after the fault: until the last line of the ranks that it ended (**stopped**), until all ranks run again
  (**exec**), and until each has made a step again (**step**). A deleted pod has its grace, 7 s here; a lost node is
  known to be lost after 20 s, its pods are deleted after 30 s more, and replaced after another 30 s.

| fault | restarts (user/infrastructure) | reason | end | unintended | orphans | lost | stopped | exec | step |
|---|---|---|---|---|---|---|---|---|---|
"""


def write(name: str, row: Measured) -> None:
    """Put the row into the page, and leave the others."""
    rows = _rows()
    seconds = ("–" if each is None else f"{each:.1f}" for each in (row.stopped, row.executed, row.stepped))
    cells = [
        name,
        f"{row.user}/{row.infrastructure}",
        row.reasons or "–",
        row.outcome,
        *map(str, (row.unintended, row.orphans, row.lost)),
        *seconds,
    ]
    rows[name] = f"| {' | '.join(cells)} |\n"
    PAGE.write_text(HEAD + "".join(rows[each] for each in FAULTS if each in rows))


def _rows() -> dict[str, str]:
    if not PAGE.exists():
        return {}
    lines = [line for line in PAGE.read_text().splitlines(keepends=True) if line.startswith("| ")][1:]
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines}
