"""Which failures are symptoms: a rank that lost another one fails too, and its report may arrive first."""

from __future__ import annotations

from dso_launch import Cause
from dso_reason import weight

SETTLE_SECONDS = 1.5  # how long a symptom waits for the report of its cause
# The ranks that have waited in one collective time out one after the other, as they had come to it.
TIMEOUT_SETTLE_SECONDS = 5.0
TIMEOUTS = ("NcclTimeout", "RendezvousTimeout")
WITHIN_PREFLIGHT = "the bandwidth preflight failed: "


def symptom(cause: Cause) -> int:
    """How much another rank's end explains this one: not at all (0), perhaps (1), or surely (2)."""
    text = cause["signature"].partition(WITHIN_PREFLIGHT)[2] or cause["signature"]
    return weight(cause["reason"], text, cause["signal"], cause["exitCode"])


def settle_seconds(cause: Cause) -> float:
    """How long it waits for the report of its cause, or of others that tell what it is."""
    return TIMEOUT_SETTLE_SECONDS if cause["reason"] in TIMEOUTS else SETTLE_SECONDS
