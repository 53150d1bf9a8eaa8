"""The fabric that a job without a network profile asks for by its variables alone.

Nothing in Kubernetes brings it the devices then, and NCCL goes on over TCP without a word.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from deepspeed_operator.api.network import NetworkProfile
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.job.fabric.profile import chosen_profile, profile
from deepspeed_operator.job.template import PodTemplate, pod_template

_EFA: Final = (NetworkProfile.AWS_EFA,)
_INFINIBAND: Final = (NetworkProfile.INFINIBAND, NetworkProfile.ROCE)
# Variable → what of its value asks for a fabric, and the profiles of that one. A list after ^ only leaves out.
_ASKING: Final = {
    "FI_PROVIDER": (r"(.*,)?efa\b.*", _EFA),
    "FI_EFA_USE_DEVICE_RDMA": (r"1", _EFA),
    "NCCL_IB_HCA": (r"[^^].*", _INFINIBAND),
    "UCX_NET_DEVICES": (r"mlx.*", _INFINIBAND),
}


@dataclass(frozen=True, slots=True)
class FabricWish:
    """`variable` asks for a fabric, which each of `profiles` would bring."""

    variable: str
    profiles: tuple[NetworkProfile, ...]

    @property
    def fabric(self) -> str:
        return "EFA" if self.profiles == _EFA else "InfiniBand or RoCE"

    def has_devices(self, template: PodTemplate) -> bool:
        """Whether the template may bring the devices: a privileged container sees the host's, and no EFA works."""
        patterns = [pattern for name in self.profiles for pattern in profile(name).devices]
        named = [*template.limits, *template.requests]
        if self.profiles != _EFA and template.security_context.get("privileged"):
            return True
        return bool(template.claims) or any(fnmatchcase(name, pattern) for name in named for pattern in patterns)


def wish_of(spec: DeepSpeedJobSpec) -> FabricWish | None:
    """Return what the variables of a job of several nodes ask for, where no profile says it."""
    if chosen_profile(spec) is not NetworkProfile.AUTO or spec.nodes == 1:
        return None
    values = dict(_values(spec))
    if values.get("NCCL_IB_DISABLE") == "1" or values.get("NCCL_NET", "").lower() == "socket":
        return None
    for name, (asks, profiles) in _ASKING.items():
        if re.fullmatch(asks, values.get(name, "")):
            return FabricWish(name, profiles)
    return None


def _values(spec: DeepSpeedJobSpec) -> Iterator[tuple[str, str]]:
    if spec.network is not None:
        yield from spec.network.env.items()
    for variable in pod_template(spec).env:
        name, value = variable.get("name"), variable.get("value")
        if isinstance(name, str) and isinstance(value, str):
            yield name, value
