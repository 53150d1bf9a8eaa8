"""Ports of an attempt: jobs with hostNetwork share nodes, and an old attempt's ranks may still hold theirs."""

from hashlib import sha256
from typing import Final, NamedTuple

FIRST: Final = 20000
LAST: Final = 29999  # below the usual ephemeral range
_PAIRS = (LAST - FIRST + 1) // 2


class Ports(NamedTuple):
    """TCP ports on every pod: the agent's, and torch.distributed's on rank 0's pod."""

    agent: int
    master: int


def ports(uid: str, attempt: int) -> Ports:
    """Return the same two ports for the same attempt, and others for the next one."""
    pair = (int.from_bytes(sha256(uid.encode()).digest()[:8]) + attempt) % _PAIRS
    agent = FIRST + 2 * pair
    return Ports(agent, agent + 1)
