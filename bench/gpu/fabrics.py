"""What joins two GPUs of one host: NCCL's variables that make it use one way or another."""

from collections.abc import Mapping
from typing import Final

_SOCKETS: Final = {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_HOSTID": "node{rank}"}

FABRICS: Final[Mapping[str, Mapping[str, str]]] = {
    "nvlink": {},
    "shm": {"NCCL_P2P_DISABLE": "1"},
    # Two nodes, as NCCL sees it; sockets are those of one connection.
    "tcp1": {**_SOCKETS, "NCCL_SOCKET_NTHREADS": "1", "NCCL_NSOCKS_PERTHREAD": "1"},
    "tcp8": {**_SOCKETS, "NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "2"},
}


def environment(fabric: str, rank: int) -> dict[str, str]:
    """The variables of a rank's process."""
    return {name: value.format(rank=rank) for name, value in FABRICS[fabric].items()}


def nodes(fabric: str) -> int:
    """How many there are for NCCL, and for whoever predicts."""
    return 2 if "NCCL_HOSTID" in FABRICS[fabric] else 1
