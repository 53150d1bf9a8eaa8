"""What the installation of the operator brings to every job."""

from dataclasses import dataclass
from typing import Final

from deepspeed_operator.api.fleet import NO_FLEET, Fleet
from deepspeed_operator.api.gangs import GANG_SCHEDULERS, GangScheduling
from deepspeed_operator.job.accelerators import CPU, NVIDIA_GPU

# Bytes of a ConfigMap that the agent may take.
AGENT_ROOM: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class Installation:
    """`agent` is its zip archive in base64; `worker_image` is empty where there is no default.

    The accelerators, a resource or CPU, are those of jobs whose template names none: `worker_accelerator` of jobs in
    the worker image, `default_accelerator` of jobs with an image of their own.
    `reads_nodes`: whether the operator may read the labels of nodes.
    `fleet`: what the platform team has set for jobs.
    `gangs`: of which schedulers the operator may make PodGroups.
    """

    agent: str
    worker_image: str = ""
    worker_deepspeed_version: str | None = None
    worker_accelerator: str = CPU
    default_accelerator: str = NVIDIA_GPU
    reads_nodes: bool = False
    fleet: Fleet = NO_FLEET
    gangs: frozenset[GangScheduling] = frozenset(GANG_SCHEDULERS)
