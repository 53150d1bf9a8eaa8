"""A fabric: what its pods need, read from its file."""

from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from deepspeed_operator.api.network import NetworkProfile
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.job.node_selection import INSTANCE_TYPE
from deepspeed_operator.job.template import pod_template


class FabricTransport(StrEnum):
    """What the ranks' library should report between nodes; P2P is NVLink."""

    ANY = "Any"
    SOCKET = "Socket"
    P2P = "P2P"
    RDMA = "RDMA"


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


class Volume(_Part):
    """A volume of the pod; without a mount path only sidecars mount it."""

    name: str
    source: Json
    mount_path: str | None = None


class Instance(_Part):
    """What differs on one type of machine."""

    environment: dict[str, str] = {}
    resources: dict[str, str] = {}


class Profile(_Part):
    """One file of profiles/."""

    summary: str
    transport: FabricTransport
    nccl: str  # the versions of NCCL that read all of the environment
    pod_security: str  # the strictest level of the Pod Security Standards that admits what is added
    sources: tuple[str, ...]
    needs: tuple[str, ...] = ()  # what the operator cannot bring
    environment: dict[str, str] = {}  # where the container has no value of its own
    library_path: tuple[str, ...] = ()  # before what LD_LIBRARY_PATH has
    resources: dict[str, str] = {}  # limits, where the template names none of `devices`
    devices: tuple[str, ...] = ()  # patterns of resource names through which the fabric's devices come
    capabilities: tuple[str, ...] = ()
    privileged: bool = False
    host_network: bool = False
    annotations: dict[str, str] = {}
    attachment: str | None = None  # the annotation by which the template attaches the fabric's interfaces
    claim: bool = False  # the fabric comes through a resource claim of the template
    volumes: tuple[Volume, ...] = ()
    sidecars: tuple[Json, ...] = ()  # native ones: init containers that go on
    tolerations: tuple[Json, ...] = ()
    instances: dict[str, Instance] = {}

    @property
    def locks_memory(self) -> bool:
        return "IPC_LOCK" in self.capabilities


@cache
def profile(name: NetworkProfile) -> Profile:
    """Return the profile of this name."""
    text = files("deepspeed_operator.job.fabric").joinpath("profiles", f"{name}.yaml").read_text(encoding="utf-8")
    read: dict[str, Any] = yaml.safe_load(text)
    return Profile.model_validate(read)


def chosen_profile(spec: DeepSpeedJobSpec) -> NetworkProfile:
    return spec.network.profile if spec.network is not None else NetworkProfile.AUTO


def profile_of(spec: DeepSpeedJobSpec) -> Profile:
    """Return the profile that the job asks for, for the machines that its template selects."""
    found = profile(chosen_profile(spec))
    instance = found.instances.get(instance_type(spec) or "", Instance())
    environment = {**found.environment, **instance.environment}
    return found.model_copy(update={"environment": environment, "resources": {**found.resources, **instance.resources}})


def instance_type(spec: DeepSpeedJobSpec) -> str | None:
    """Return the type of machine that the template demands; None if it leaves it open."""
    demanded = {value for label, value in pod_template(spec).demand.labels() if label == INSTANCE_TYPE}
    return demanded.pop() if len(demanded) == 1 else None
