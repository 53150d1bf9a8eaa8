"""Ports of an attempt: jobs with hostNetwork share nodes, and an old attempt's ranks may still hold theirs."""

from hashlib import sha256
from typing import Final, NamedTuple

FIRST: Final = 20000
LAST: Final = 29999  # below the usual ephemeral range
_BLOCK: Final = 10
_BLOCKS: Final = (LAST - FIRST + 1) // _BLOCK


class Ports(NamedTuple):
    """TCP ports of an attempt: the agent's on every pod, and on rank 0's pod those of torch.distributed.

    `masters` are for the rounds of the attempt, one each and the first again after the last: ranks of a round that has
    failed may still hold its port. All are of one block, so that pods which the scheduler keeps apart for the agent's
    port of the host do not meet on another one either.
    """

    agent: int
    preflight: int
    masters: tuple[int, ...]

    @property
    def all(self) -> tuple[int, ...]:
        return (self.agent, self.preflight, *self.masters)


def ports(uid: str, attempt: int) -> Ports:
    """Return the same ports for the same attempt, and others for the next ones."""
    block = (int.from_bytes(sha256(uid.encode()).digest()[:8]) + attempt) % _BLOCKS
    agent, preflight, *masters = range(FIRST + block * _BLOCK, FIRST + (block + 1) * _BLOCK)
    return Ports(agent, preflight, tuple(masters))
