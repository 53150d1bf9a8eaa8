"""How the ranks of a round ended: a table for the log of rank 0's pod, and its beginning for the operator."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple

if TYPE_CHECKING:
    from dso_processes import Processes

MOST_LINES = 20
MOST = 10  # that the operator is told of
WORDS = 100  # characters of a rank's own words


def endings_of(processes: Processes, number: int, now: float) -> dict[str, Any] | None:
    """What this pod reports of the processes of this round, which have ended; None where it had none.

    `failed`: those that had ended by themselves before they were told to, but for those that ended with 0.
    """
    ended = [child for child in processes.children if child.ended is not None]
    if not ended:
        return None
    failed: list[list[Any]] = []
    for child in ended:
        if child.code and not child.stopped:
            cause = processes.failure(child)
            words = cause["signature"][:WORDS]
            failed.append([cause["rank"], cause["exitCode"], cause["signal"], now - (child.ended or now), words])
    stopped = sum(child.stopped for child in ended)
    return {"round": number, "failed": failed, "stopped": stopped, "left": len(ended) - len(failed) - stopped}


class Ending(NamedTuple):
    """Of one rank, or of the program where that starts the ranks (rank None); `at` is by the hub's clock."""

    at: float
    node: int  # the pod's index
    rank: int | None
    exit_code: int | None
    signal: int | None
    words: str
    place: str

    @property
    def how(self) -> str:
        if self.signal is None:
            return f"exit code {self.exit_code}"
        known = self.signal in {each.value for each in signal.Signals}
        return f"signal {self.signal}" + (f" ({signal.Signals(self.signal).name})" if known else "")


class Endings:
    """What the hub has heard of the latest round that has ended."""

    def __init__(self) -> None:
        self.round = 0
        self.heard: set[int] = set()  # the pods
        self.failed: list[Ending] = []
        self.stopped = self.left = 0

    def take(self, index: int, place: str, report: Mapping[str, Any], now: float) -> None:
        """This pod, which is so called, reports as `endings_of` has it."""
        number = int(report["round"])
        failed = [
            Ending(now - float(ago), index, rank, code, killed, str(words)[:WORDS], place)
            for rank, code, killed, ago, words in report["failed"]
        ]
        if number > self.round:
            self.round, self.heard, self.failed, self.stopped, self.left = number, set(), [], 0, 0
        if number < self.round or index in self.heard:
            return
        self.heard.add(index)
        self.failed = sorted([*self.failed, *failed], key=lambda each: (each.at, each.node))
        self.stopped += int(report["stopped"])
        self.left += int(report["left"])

    def table(self) -> str:
        """One rank a line, in the order of time; empty where none had failed by itself."""
        if not self.failed:
            return ""
        first, shown = self.failed[0].at, self.failed[:MOST_LINES]
        rows = [("the program" if each.rank is None else f"rank {each.rank}", each.place, each.how) for each in shown]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [f"how the ranks of round {self.round} ended:"]
        for row, each in zip(rows, shown):
            columns = "  ".join(text.ljust(width) for text, width in zip(row, widths))
            lines.append(f"  {columns}  {each.at - first:+6.1f} s  {each.words}".rstrip())
        others = [(len(self.failed) - len(shown), "more failed"), (self.stopped, "stopped"), (self.left, "exit code 0")]
        lines += [f"  {count} {words}" for count, words in others if count]
        return "\n".join(lines)

    def brief(self) -> dict[str, Any]:
        """The counts, and the first MOST: rank, index of the pod, exit code, signal, seconds after the first.

        There must be one.
        """
        first = self.failed[0].at
        told = [[each.rank, each.node, each.exit_code, each.signal, round(each.at - first, 1)] for each in self.failed]
        return {"failed": len(self.failed), "stopped": self.stopped, "left": self.left, "first": told[:MOST]}
