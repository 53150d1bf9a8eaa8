"""What the ranks really use to talk to each other, as their library reports it."""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.markers import Atomic

MAX_LINKS: Final = 8


class TransportState(StrEnum):
    """What the nodes use between them; in a job of one node, what its ranks use."""

    PENDING = "Pending"
    UNKNOWN = "Unknown"
    P2P = "P2P"
    SHM = "SHM"
    IB = "IB"
    OFI = "OFI"
    PLUGIN = "Plugin"
    SOCKET = "Socket"
    MIXED = "Mixed"


_KINDS: Final = "P2P (NVLink or PCIe), SHM, IB (InfiniBand or RoCE), OFI, Plugin (another network plugin), Socket (TCP)"


_Device = Annotated[str, Field(max_length=64)]
_Pair = Annotated[str, Field(max_length=16)]


class TransportLink(ApiModel):
    """One way that pairs of nodes, or ranks within their nodes, use."""

    between: Literal["Nodes", "Ranks"] = Field(description="Nodes, or Ranks of the same node.")
    uses: str = Field(max_length=80, description="NCCL's word for it. Examples: NET/IB/GDRDMA, NET/Socket, P2P/CUMEM")
    kind: TransportState = Field(description=f"{_KINDS}.")
    devices: Annotated[list[_Device], Atomic()] = Field(
        default=[], max_length=16, description="Network devices or interfaces. Example: mlx5_0 (RoCE)"
    )
    pairs: int | None = Field(default=None, description="Pairs of nodes that use it.")
    nodes: Annotated[list[_Pair], Atomic()] = Field(
        default=[],
        max_length=16,
        description="The first of these pairs, as pod indices such as 0-1; empty if all connected pairs use it.",
    )


class Transport(ApiModel):
    """How the ranks are connected, read from NCCL's (RCCL's) own report by the agents."""

    state: TransportState = Field(
        description=f"Pending: no collective yet. Unknown: none was reported by the end of the first step. Else what "
        f"all nodes use between them (in a job of one node, its ranks): {_KINDS}; Mixed: see links."
    )
    links: Annotated[list[TransportLink], Atomic()] = Field(
        default=[], max_length=MAX_LINKS, description="Every way that is used, with its devices."
    )
    library: str | None = Field(default=None, max_length=80, description="Example: NCCL 2.28.9+cuda13.0")
    message: str | None = Field(default=None, max_length=512, description="Why nothing is known, if that is so.")
    bus_bandwidth: Annotated[int, Field(ge=0, le=2**62)] | None = Field(
        default=None, description="Bytes a second, measured by spec.network.preflight before the ranks started."
    )
