"""Numbers of a run as people read them at a glance."""

from datetime import datetime
from itertools import pairwise

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_BARS = "▁▂▃▄▅▆▇█"


def duration(seconds: float) -> str:
    """Return a time as kubectl writes ages: the two largest of its units, as in 1h20m."""
    left = max(0, round(seconds))
    for (size, unit), (smaller, below) in pairwise(_UNITS):
        if left >= size:
            rest = left % size // smaller
            return f"{left // size}{unit}{f'{rest}{below}' if rest else ''}"
    return f"{left}s"


def until(eta: str | None, now: datetime) -> str:
    """Return how long it is until a time of Kubernetes; empty where none is known."""
    return duration((datetime.fromisoformat(eta) - now).total_seconds()) if eta is not None else ""


def scaled(number: float | None) -> str:
    """Return a rate in few characters: 98.1k; empty where none is known."""
    if number is None:
        return ""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def steps(step: int | None, total: int | None) -> str:
    """Return a step and how many there will be, as far as they are known."""
    if step is None:
        return ""
    return f"{step}/{total}" if total is not None else f"{step}"


def sparkline(values: list[float], width: int) -> str:
    """Return the last of the values as bars between the least and the greatest of them."""
    shown = values[-width:] if width > 0 else []
    if not shown:
        return ""
    least, most = min(shown), max(shown)
    span = most - least or 1.0
    return "".join(_BARS[round((value - least) / span * (len(_BARS) - 1))] for value in shown)
