"""What the installation of the operator brings to every job."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Installation:
    """`agent_files` maps a file name of the agent to its text; `worker_image` is empty where there is no default."""

    agent_files: Mapping[str, str]
    worker_image: str = ""
    worker_deepspeed_version: str | None = None
