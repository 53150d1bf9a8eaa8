"""The phases of training in what was measured: step by step, micro step by micro step, rank by rank."""

from collections.abc import Iterable, Mapping
from typing import Any


def phases_of(ranks: Iterable[Mapping[str, Any]], accumulation: int) -> dict[str, dict[str, int]]:
    """Return each phase's highest `peak` and what stays `after` it, of all ranks; bytes.

    engine.step() steps the optimizer in the last of `accumulation` micro steps only. Of the others it tells what waits
    `between` them.
    """
    found: dict[str, dict[str, int]] = {}
    for rank in ranks:
        for _, micro, name, peak, after in rank["trace"]:
            phase = "between" if name == "step" and micro < accumulation else name
            highest = found.setdefault(phase, {"peak": 0, "after": 0})
            highest["peak"], highest["after"] = max(highest["peak"], peak), max(highest["after"], after)
    return found
