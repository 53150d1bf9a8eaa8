"""Whom the ranks that timed out had waited for, and what it was doing: by what each rank printed last."""

from __future__ import annotations

import re
import time
from typing import Any, Mapping, Sequence

from dso_launch import Cause
from dso_reason import signature_of
from dso_symptom import TIMEOUTS
from dso_words import legible, plain

_MOST = 16  # ranks of a pod
_LINE = 100  # characters of what a rank printed last
_COLLECTIVE = re.compile(r"SeqNum=(\d+), OpType=(\w+).*?(?:Timeout\(ms\)=|ran for )(\d+)")
_NAMED = re.compile(r"Ranks? ([\d, ]+) failed to pass")
_NOISE = re.compile(r"^(?:\[(?:rank|default)\d+\]: ?)*\s*$|^frame #|^Exception raised from|^\[[EFIW][\d :.]*\S+\.cpp:")


def ranks_now(children: Sequence[Any]) -> list[dict[str, Any]]:
    """What this pod's ranks printed last, and which of them say that they have waited in vain."""
    now = time.monotonic()
    found: list[dict[str, Any]] = []
    for child in children[:_MOST]:
        lines = plain(legible(child.stream.tail)).splitlines()[-60:]
        told = [line for line in lines if _reason(line) in TIMEOUTS]
        last = next((line.strip() for line in reversed(lines) if not _NOISE.match(line)), "")
        ago = None if child.stream.at is None else max(0, round(now - child.stream.at))
        found.append({"rank": child.spec.rank, "told": (told or [""])[-1][:300], "last": last[:_LINE], "ago": ago})
    return found


def waited_for(cause: Cause, pods: Mapping[int, Sequence[Mapping[str, Any]]], names: Mapping[int, str]) -> str:
    """The cause in one sentence with whom it had waited for; its own words where nobody can tell.

    `pods`: what `ranks_now` has found, by the index of the pod; `names`: of the pods, with their nodes.
    """
    every = [(index, rank) for index in sorted(pods) for rank in pods[index] if rank["rank"] is not None]
    waiting = [(index, each) for index, each in every if each["told"] or each["rank"] == cause["rank"]]
    named = _NAMED.search(cause["signature"])
    late = [each for each in every if each not in waiting]
    if named:
        numbers = {int(number) for number in re.findall(r"\d+", named[1])}
        late = [each for each in every if each[1]["rank"] in numbers]
    if not every or (len(waiting) == len(every) and not named):
        return _all_waited(cause, [each for _, each in waiting])
    if not late or (len(late) > len(waiting) and not named):
        return cause["signature"]  # nothing is heard of those, or as many tell nothing because they say nothing
    index, first = min(late, key=lambda each: each[1]["rank"])
    who = f"rank {first['rank']} in {names[index]}"
    others = f" (nor {_ranks([each['rank'] for _, each in late if each is not first])})" if len(late) > 1 else ""
    said = f"; its last output {_age(first['ago'])} before: '{first['last']}'" if first["last"] else ""
    silent = "" if first["last"] else "; it has printed nothing"
    return f"{_waited(cause, waiting)}: {who} had not arrived{others}{said}{silent}"


def _all_waited(cause: Cause, ranks: Sequence[Mapping[str, Any]]) -> str:
    where = {match[2] + " " + match[1] for each in ranks for match in _COLLECTIVE.finditer(each["told"])}
    if len(ranks) < 2 or not where:
        return cause["signature"]
    if len(where) == 1:
        return f"all ranks waited in {where.pop()}: a connection between them hangs, or a GPU: {cause['signature']}"
    return f"the ranks waited in different collectives ({', '.join(sorted(where)[:4])}): {cause['signature']}"


def _waited(cause: Cause, waiting: Sequence[tuple[int, Mapping[str, Any]]]) -> str:
    who = _ranks([each["rank"] for _, each in waiting] or [cause["rank"]])
    match = next((found for _, each in waiting if (found := _COLLECTIVE.search(each["told"]))), None)
    match = match or _COLLECTIVE.search(cause["signature"])
    if match:
        return f"{who} waited {round(int(match[3]) / 1000)} s in {match[2]} {match[1]}"
    return f"{who} waited in vain" if cause["reason"] == "NcclTimeout" else f"{who} waited at the start"


def _ranks(numbers: Sequence[int]) -> str:
    ordered = sorted(numbers)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    if len(ordered) == 2:
        return f"ranks {ordered[0]} and {ordered[1]}"
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"ranks {ordered[0]} to {ordered[-1]}"
    shown = ", ".join(str(number) for number in ordered[:6])
    return f"ranks {shown}" + (f" and {len(ordered) - 6} more" if len(ordered) > 6 else "")


def _age(seconds: int | None) -> str:
    if seconds is None:
        return "long"
    return f"{seconds} s" if seconds < 120 else f"{round(seconds / 60)} min"


def _reason(line: str) -> str:
    found = signature_of(line, aborted=True)
    return found.reason if found else ""
