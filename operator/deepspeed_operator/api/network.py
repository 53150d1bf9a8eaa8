"""How the ranks reach each other, as the spec asks for it."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.markers import Cel, IntOrString, left_open
from deepspeed_operator.api.quantity import QUANTITY_PATTERN


class NetworkProfile(StrEnum):
    """A fabric; job/fabric/profiles has a file of each."""

    AUTO = "Auto"
    TCP = "TCP"
    NVLINK = "NVLink"
    INFINIBAND = "InfiniBand"
    ROCE = "RoCE"
    AWS_EFA = "AWS-EFA"
    GKE_TCPX = "GKE-TCPX"
    GKE_TCPXO = "GKE-TCPXO"
    GKE_RDMA = "GKE-RDMA"
    AZURE_IB = "Azure-IB"
    OCI_ROCE = "OCI-RoCE"
    COREWEAVE_IB = "CoreWeave-IB"
    MNNVL = "MNNVL"


class Preflight(StrEnum):
    """What is measured before the ranks start."""

    NONE = "None"
    BANDWIDTH = "Bandwidth"


Interface = Annotated[str, Field(min_length=1, max_length=15, pattern=r"^[a-zA-Z0-9][-._a-zA-Z0-9]*$")]


class Network(ApiModel):
    """How the ranks reach each other."""

    profile: NetworkProfile = Field(
        default=NetworkProfile.AUTO,
        json_schema_extra=left_open,
        description="The fabric that carries the collectives. Auto, the default: nothing is set, the library "
        "chooses. Every other profile adds what its fabric needs to the pods (variables, resources, capabilities, "
        "volumes, sidecars) and makes a fabric that is missing an error instead of a slow network. What the "
        "template, the image or env already say stays. docs/network.md lists them.",
    )
    interface: Interface | None = Field(
        default=None,
        description="Name of the interface in the pods over which the ranks find each other, and over which TCP "
        "traffic goes: exactly this one, where the libraries themselves would take eth10 for eth1. Sets "
        "NCCL_SOCKET_IFNAME, or the accelerator's counterpart, and GLOO_SOCKET_IFNAME and TP_SOCKET_IFNAME. "
        "Unset: the libraries choose. Example: eth0",
    )
    env: dict[str, Annotated[str, Field(max_length=4096)]] = Field(
        default={},
        max_length=64,
        description="Variables of the collective library, set for the trainer container. They win over the profile "
        "and interface; spec.template's env wins over them. Unknown, misspelt and dangerous ones are listed in "
        "status.findings. Default: none. Example: {NCCL_DEBUG: INFO}",
    )
    require: bool = Field(
        default=False,
        description="True ends the run with reason TransportMismatch when NCCL reports that it does not use the "
        "profile's fabric: TCP where the profile is one of RDMA. False, the default: a finding and a Warning event "
        "say so.",
    )
    preflight: Preflight = Field(
        default=Preflight.NONE,
        description="Bandwidth: before the ranks start, all-reduces of 1 to 256 MiB are measured with torch in the "
        "job's own image, over nccl on GPUs (NVIDIA, AMD), else gloo (to 64 MiB); up to half a minute. "
        "status.transport has the result. None, the default: nothing is measured.",
    )
    minimum_bus_bandwidth: Annotated[int | str, IntOrString(QUANTITY_PATTERN)] | None = Field(
        default=None,
        description="Bytes a second. The run fails with reason PreflightFailed where preflight measures less bus "
        "bandwidth: 2(n-1)/n times the bytes of an all-reduce of n ranks, divided by its time. Unset: any is enough. "
        "Example: 100G",
    )


REQUIRE_NEEDS_FABRIC = Cel(
    "!self.require || (has(self.profile) && !(self.profile in ['Auto', 'TCP']))",
    "spec.network.require: profiles Auto and TCP accept whatever is used; write your fabric's profile, or remove it",
)
MINIMUM_NEEDS_PREFLIGHT = Cel(
    "!has(self.minimumBusBandwidth) || self.preflight == 'Bandwidth'",
    "spec.network.minimumBusBandwidth: nothing measures it; set spec.network.preflight to Bandwidth",
)
