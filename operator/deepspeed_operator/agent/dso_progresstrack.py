"""What one source has said of a round's progress, and the numbers in it."""

from __future__ import annotations

import collections
import math
from typing import Any, Mapping

WINDOW = 64
MOST_STEPS = 1 << 62
VALUES = ("loss", "rate", "samples", "tokens")


class Track:
    """What one source has said in this round. A message that lacks something leaves that as it was."""

    def __init__(self) -> None:
        self.step: int | None = None
        self.total: int | None = None
        self.with_engine = False  # whether it counted the engine's steps when it has last told one
        self.values: dict[str, float] = {}  # loss, rate, samples, tokens
        # When a step was seen, and which: from the second on, since before it a resume may have skipped thousands, and
        # kernels are chosen in the first.
        self.first = self.last = (0.0, 0)
        self.second = False
        self.at = float("-inf")  # when it has last told a step that is news; of one that tells none, anything
        self.seconds: collections.deque[float] = collections.deque(maxlen=WINDOW)  # of its last steps

    def take(self, step: int | None, total: int | None, values: Mapping[str, float], now: float) -> None:
        self.values.update(values)
        self.total = total or self.total
        if self.step is None:
            self.at = now
        if step is None or step == self.step:
            return
        if self.step is not None and step < self.step:
            if near(step, self.step):
                return  # of another rank, which is a little behind
            self.step = None  # another training has begun
            self.seconds.clear()
        if self.step is None or not self.second:
            self.first, self.second = (now, step), self.step is not None
        else:
            self.seconds.append((now - self.last[0]) / (step - self.step))
        self.step, self.last, self.at = step, (now, step), now

    def step_seconds(self) -> float | None:
        """Seconds of a step on average, what comes between two steps included; None while there is none to count."""
        steps = self.last[1] - self.first[1]
        return (self.last[0] - self.first[0]) / steps if steps > 0 else None


def near(step: int, other: int) -> bool:
    """Whether two may count the same steps: sources speak of one some seconds apart."""
    return abs(step - other) <= 2 + max(step, other) // 50


def whole(value: Any) -> int | None:
    found = number(value)
    return int(found) if found is not None and 0 <= found <= MOST_STEPS else None


def number(value: Any) -> float | None:
    """Also one that is written as text; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def values_of(facts: Mapping[str, Any]) -> dict[str, float]:
    """Those that are numbers; a loss may well be none."""
    found = {name: number(facts.get(name)) for name in VALUES}
    return {
        name: value for name, value in found.items() if value is not None and (name == "loss" or math.isfinite(value))
    }
