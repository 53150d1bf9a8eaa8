"""Whether the ranks that train together began from one checkpoint: what each pod reports, and what the gang concludes.

DeepSpeed does not compare what its ranks load: they train on with parameters, or parts of them, of several steps.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, Mapping, NamedTuple

# Of a pod, whose ranks may each train with others; a heartbeat has room for them, whatever their paths are.
MOST_STARTS = 64
MOST_RANKS, MOST_KINDS, MOST_SHOWN = 64, 3, 3
NAME = 40  # of a directory, the end of it
PEERS = 64  # characters
STRANGE = (ValueError, LookupError, TypeError, OverflowError)  # what a report raises that another wrote


class Start(NamedTuple):
    """How ranks began: the end of the checkpoint's path, empty if there was none, and the step before their first.

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
        try:
            start = report["start"]
            shown = "/".join(each[-NAME:] for each in str(start["path"]).split("/")[-2:])
            shown = "".join(each if each.isprintable() else "?" for each in shown)
            key = (str(start["peers"])[:PEERS], bool(start["loads"]), shown, int(start["step"]))
            rank = int(start["rank"])
        except STRANGE:
            continue  # it tells of something else, or is not the hook's
        ranks = found.setdefault(key, []) if key in found or len(found) < MOST_STARTS else []
        if len(ranks) < MOST_RANKS:
            ranks.append(rank)
    return [[*key, ranks] for key, ranks in found.items()]


class Starts:
    """Those of one round, of which the hub alone hears. The HTTP thread takes reports, and others read."""

    def __init__(self) -> None:
        self.peers: dict[str, dict[Start, Places]] = {}
        self.apart: str | None = None  # whose ranks began apart
        self.wrong = False  # whether DeepSpeed certainly trains these wrongly

    @property
    def words(self) -> str:
        """What differs; empty where nothing does. Many ranks are sorted for it: not for every report."""
        apart = self.peers.get(self.apart or "", {})
        return _difference({start: dict(places) for start, places in list(apart.items())}) if apart else ""

    def take(self, report: Any, place: str) -> None:
        """`place` names the pod and its node."""
        try:
            starts = [
                (
                    str(peers)[:PEERS],
                    Start(bool(loads), str(path)[-2 * NAME - 1 :], int(step)),
                    [int(rank) for rank in ranks[:MOST_RANKS]],
                )
                for peers, loads, path, step, ranks in report["starts"][:MOST_STARTS]
                if ranks
            ]
        except STRANGE:
            return  # not an agent's
        for peers, start, ranks in starts:
            known, places = self.peers.setdefault(peers, {}), dict.fromkeys(ranks, place)
            known.setdefault(start, places).update(places)
            if self.wrong:
                continue
            if start.checkpoint != next(iter(known)).checkpoint:
                self.apart = peers
            if start.loads and start.step != next(each for each in known if each.loads).step:
                self.apart, self.wrong = peers, True


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
