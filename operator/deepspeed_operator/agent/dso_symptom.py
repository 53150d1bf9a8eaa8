"""Which failures are symptoms: a rank that lost another one fails too, and its report may arrive first."""

from __future__ import annotations

import re

from dso_launch import Cause

SETTLE_SECONDS = 1.5  # how long a symptom waits for the report of its cause
_LOST_CONNECTION = re.compile(r"(?:Connection(?:Reset|Refused|Aborted)|BrokenPipe)Error\b")
_LOST_RENDEZVOUS = re.compile(r"(?:\w+\.)*RendezvousConnectionError\b")
# torch raises as one of these what gloo, NCCL and its stores tell; whatever else it raises so is a cause.
_OF_TORCH = re.compile(r"(?:(?:\w+\.)*Dist(?:Backend|Store|Network|)Error|RuntimeError): ")
_LOST_RANK = re.compile(
    # gloo, and all that a socket says
    r"connection (?:was )?(?:likely )?(?:reset|closed|refused|aborted)|broken pipe|socket timeout|pair closure"
    r"|gloo/transport/\w+/(?:pair|buffer|unbound_buffer)\.cc|timed out waiting \d+ms for (?:send|recv)"
    # the store of torch.distributed
    r"|client socket has (?:timed out|failed to connect)|failed to recv, got 0 bytes|wait timeout after \d+ms"
    r"|timed out after \d+ seconds waiting for clients"
    # NCCL
    r"|remote process exited|nccl(?:Remote|System)Error|unhandled system error|communicator was aborted"
    r"|watchdog caught collective operation timeout",
    re.IGNORECASE,
)
WITHIN_PREFLIGHT = "the bandwidth preflight failed: "
_ABORTED = 6  # how torch ends a rank whose NCCL has waited too long


def is_secondary(cause: Cause) -> bool:
    """Whether another rank's end explains this one's. By type of exception and known texts: any word may be a key."""
    if cause["reason"] not in ("RankFailed", "PreflightFailed"):
        return False
    text = cause["signature"].partition(WITHIN_PREFLIGHT)[2] or cause["signature"]
    if _LOST_CONNECTION.match(text) or _LOST_RENDEZVOUS.match(text):
        return True
    of_torch = _OF_TORCH.match(text) or cause["signal"] == _ABORTED
    return bool(of_torch and _LOST_RANK.search(text))
