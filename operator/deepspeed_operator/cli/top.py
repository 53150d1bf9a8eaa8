"""`dsjob top`."""

import argparse
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from deepspeed_operator.cli.job_rows import COLUMNS, NARROW, plain, row
from deepspeed_operator.cli.job_view import JobView
from deepspeed_operator.cli.kubectl import Kubectl, define_cluster
from deepspeed_operator.cli.numbers import positive

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_NARROW: Final = 100
_LEAST: Final = 8  # characters of a name
_NAMES: Final = frozenset({"NAMESPACE", "NAME"})
_LEFT: Final = _NAMES | {"STATE"}
_COLOURS: Final = {"Running": "green", "Complete": "green", "Failed": "red", "Invalid": "red", "Restarting": "yellow"}


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    define_cluster(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="the jobs of all namespaces")
    parser.add_argument("--interval", type=positive, default=2.0, metavar="SECONDS", help="between two looks; else 2")
    parser.epilog = (
        "On a terminal the table is drawn again until Ctrl-C, jobs that have ended last; elsewhere it is printed once."
    )


def run(arguments: argparse.Namespace) -> int:
    """Show the jobs, and return how the command ends."""
    cluster = Kubectl.of(arguments)
    options = ("--all-namespaces",) if arguments.all_namespaces else ()
    first = 0 if arguments.all_namespaces else 1

    def rows(jobs: list[JobView]) -> list[tuple[str, ...]]:
        return [row(job, datetime.now(UTC))[first:] for job in jobs]

    def look(console: "Console") -> "Table":
        # A terminal shows those that come first, and most of many have ended.
        jobs = sorted(cluster.jobs(*options), key=lambda job: job.finished)
        return table((NARROW if console.width < _NARROW else COLUMNS)[first:], rows(jobs), console.width)

    if sys.stdout.isatty():
        # It takes long to load, and a pipe does without.
        from deepspeed_operator.cli.screen import can_draw, follow  # noqa: PLC0415

        if can_draw():
            return follow(look, arguments.interval)
    print(plain(COLUMNS[first:], rows(cluster.jobs(*options))))
    return 0


def table(headings: tuple[str, ...], rows: list[tuple[str, ...]], width: int) -> "Table":
    """Return the table as it is drawn: one line a job, of which long names alone lose their ends."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    widths = [max(len(line[at]) for line in (headings, *rows)) for at in range(len(headings))]
    names = [at for at, heading in enumerate(headings) if heading in _NAMES]
    room = width - sum(each + 1 for at, each in enumerate(widths) if at not in names) - len(names)
    for at, heading in enumerate(headings):
        most = max(_LEAST, room // len(names)) if at in names else widths[at]
        justify = "left" if heading in _LEFT else "right"
        drawn.add_column(heading, justify=justify, no_wrap=True, overflow="ellipsis", max_width=most)
    where = headings.index("STATE")
    for each in rows:
        cells = [Text(cell) for cell in each]
        cells[where].stylize(_COLOURS.get(each[where], ""))
        drawn.add_row(*cells)
    return drawn
