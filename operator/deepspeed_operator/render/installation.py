"""What the installation of the operator brings to every job."""

from dataclasses import dataclass
from typing import Final

# Characters of a ConfigMap that the agent may take.
AGENT_ROOM: Final = 48 * 1024


@dataclass(frozen=True, slots=True)
class Installation:
    """`agent` is its zip archive in base64; `worker_image` is empty where there is no default.

    `reads_nodes`: whether the operator may read the labels of nodes.
    """

    agent: str
    worker_image: str = ""
    worker_deepspeed_version: str | None = None
    reads_nodes: bool = False
