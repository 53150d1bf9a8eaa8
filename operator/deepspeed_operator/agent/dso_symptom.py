"""Which failures are symptoms: a rank that lost another one fails too, and its report may arrive first."""

from __future__ import annotations

from dso_launch import Cause
from dso_reason import weight

SETTLE_SECONDS = 1.5  # how long a symptom waits for the report of its cause
WITHIN_PREFLIGHT = "the bandwidth preflight failed: "


def symptom(cause: Cause) -> int:
    """How much another rank's end explains this one: not at all (0), perhaps (1), or surely (2)."""
    text = cause["signature"].partition(WITHIN_PREFLIGHT)[2] or cause["signature"]
    return weight(cause["reason"], text, cause["signal"], cause["exitCode"])
