"""A fabric: what its pods need, read from its file."""

from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from deepspeed_operator.api.spec import DeepSpeedJobSpec, NetworkProfile


class Transport(StrEnum):
    """What the ranks' library should report between nodes; P2P within the one node."""

    ANY = "Any"
    SOCKET = "Socket"
    P2P = "P2P"
    RDMA = "RDMA"


class Profile(BaseModel):
    """One file of profiles/."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)

    summary: str
    transport: Transport
    nccl: str  # the versions of NCCL that the fabric needs
    pod_security: str  # the strictest level of the Pod Security Standards that admits the pods
    sources: tuple[str, ...]
    environment: dict[str, str] = {}  # where the container has no value of its own


@cache
def profile(name: NetworkProfile) -> Profile:
    """Return the profile of this name."""
    text = files("deepspeed_operator.render.network").joinpath("profiles", f"{name}.yaml").read_text(encoding="utf-8")
    read: dict[str, Any] = yaml.safe_load(text)
    return Profile.model_validate(read)


def profile_of(spec: DeepSpeedJobSpec) -> Profile:
    """Return the profile that the job asks for."""
    return profile(spec.network.profile if spec.network is not None else NetworkProfile.AUTO)
