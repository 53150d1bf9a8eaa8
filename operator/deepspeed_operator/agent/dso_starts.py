"""Whether the ranks that train together began from one checkpoint: what each pod reports, and what the gang concludes.

DeepSpeed does not compare what its ranks load: they train on with parameters, or parts of them, of several steps.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, Mapping, NamedTuple

MOST_STARTS, MOST_RANKS, MOST_KINDS, MOST_SHOWN = 8, 64, 3, 3
NAME = 40  # of a directory, the end of it


class Start(NamedTuple):
    """How ranks began: the end of the checkpoint's path, empty if there was none, and the step after its load.

    `loads`: whether load_checkpoint was called at all; a program may have another way to give a rank its parameters.
    """

    loads: bool
    path: str
    step: int

    @property
    def checkpoint(self) -> tuple[str, int]:
        """By its tag: what is above it may be a node's own."""
        return os.path.basename(self.path), self.step

    def words(self) -> str:
        if not self.path:
            return "found none to load" if self.loads else "did not load one"
        return f"loaded {self.path} (step {self.step})"


Places = Dict[int, str]  # of ranks, the pod and node of each


def starts_of(reports: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    """What a member reports to the hub: whose peers its ranks are, how they began, and which ranks these are."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for report in reports:
        start = report.get("start")
        if start:
            shown = "/".join(each[-NAME:] for each in start["path"].split("/")[-2:])
            shown = "".join(each if each.isprintable() else "?" for each in shown)
            key = (start["peers"], start["loads"], shown, start["step"])
            ranks = found.setdefault(key, []) if key in found or len(found) < MOST_STARTS else []
            if len(ranks) < MOST_RANKS:
                ranks.append(start["rank"])
    return [[*key, ranks] for key, ranks in found.items()]


class Starts:
    """Those of one round, of which the hub alone hears."""

    def __init__(self) -> None:
        self.peers: dict[str, dict[Start, Places]] = {}
        self.words = self.wrong = ""  # what differs, and what DeepSpeed certainly trains wrongly

    def take(self, report: Any, place: str) -> None:
        """`place` names the pod and its node."""
        try:
            starts = [
                (str(peers), Start(bool(loads), str(path), int(step)), [int(rank) for rank in ranks])
                for peers, loads, path, step, ranks in report["starts"][:MOST_STARTS]
            ]
        except (ValueError, LookupError, TypeError):
            return  # not an agent's
        for peers, start, ranks in starts:
            known = self.peers.setdefault(peers, {})
            known.setdefault(start, {}).update(dict.fromkeys(ranks, place))
            if len({each.checkpoint for each in known}) > 1:
                self.words = _difference(known)
            if len({each.step for each in known if each.loads}) > 1:
                self.wrong = self.words


def _difference(starts: Mapping[Start, Places]) -> str:
    told = [
        f"{_ranks(places)} {start.words()}" for start, places in sorted(starts.items(), key=lambda each: min(each[1]))
    ]
    return f"the ranks did not begin from one checkpoint: {'; '.join(told[:MOST_KINDS])}"


def _ranks(places: Places) -> str:
    ranks = sorted(places)
    shown = ", ".join(map(str, ranks[:MOST_SHOWN])) + (
        f" and {len(ranks) - MOST_SHOWN} more" if ranks[MOST_SHOWN:] else ""
    )
    others = len(set(places.values())) - 1
    more = f" and {others} more" if others else ""
    return f"rank{'s' if ranks[1:] else ''} {shown} ({places[ranks[0]]}{more})"
