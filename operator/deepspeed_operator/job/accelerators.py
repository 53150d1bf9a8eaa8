"""Extended resources that are accelerators: one unit is one slot, which runs one rank."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import World
from deepspeed_operator.job.template import PodTemplate, pod_template

NVIDIA_GPU: Final = "nvidia.com/gpu"
CPU: Final = "cpu"


@dataclass(frozen=True, slots=True)
class Library:
    """A collective library: how its variables begin, and which of them name an interface, in what form."""

    name: str
    prefix: str
    interface: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A kind of device: its vendor, its name in DeepSpeed (DS_ACCELERATOR), and its collective library."""

    vendor: str
    name: str
    library: Library


# A plain name is a prefix to NCCL, RCCL and Huawei's HCCL; with = it is exact. RCCL reads NCCL's variables.
_NCCL: Final = Library("NCCL", "NCCL_", {"NCCL_SOCKET_IFNAME": "={}"})
_RCCL: Final = Library("RCCL", "NCCL_", {"NCCL_SOCKET_IFNAME": "={}"})
_ONECCL: Final = Library("oneCCL", "CCL_", {"CCL_KVS_IFACE": "{}", "FI_TCP_IFACE": "{}"})
_GAUDI_HCCL: Final = Library("HCCL (Gaudi)", "HCCL_", {"HCCL_SOCKET_IFNAME": "{}"})
_ASCEND_HCCL: Final = Library("HCCL (Ascend)", "HCCL_", {"HCCL_SOCKET_IFNAME": "={}"})
_CNCL: Final = Library("CNCL", "CNCL_", {})
_GLOO: Final = Library("gloo", "GLOO_", {})

# Resource name, as the vendor's device plugin registers it → what it is.
ACCELERATORS: Final[Mapping[str, Accelerator]] = {
    "nvidia.com/gpu": Accelerator("NVIDIA", "cuda", _NCCL),
    "nvidia.com/gpu.shared": Accelerator("NVIDIA", "cuda", _NCCL),
    "nvidia.com/gpu-*": Accelerator("NVIDIA", "cuda", _NCCL),  # renamed in the device plugin, such as gpu-h100
    "nvidia.com/mig-*": Accelerator("NVIDIA", "cuda", _NCCL),
    "amd.com/gpu": Accelerator("AMD", "rocm", _RCCL),
    "gpu.intel.com/i915": Accelerator("Intel", "xpu", _ONECCL),
    "gpu.intel.com/xe": Accelerator("Intel", "xpu", _ONECCL),
    "habana.ai/gaudi": Accelerator("Intel", "hpu", _GAUDI_HCCL),
    "huawei.com/Ascend*": Accelerator("Huawei", "npu", _ASCEND_HCCL),
    "cambricon.com/mlu*": Accelerator("Cambricon", "mlu", _CNCL),
}
_LIBRARIES: Final[Mapping[str, Library]] = {
    **{accelerator.name: accelerator.library for accelerator in ACCELERATORS.values()},
    CPU: _GLOO,
}
_CHOICE: Final = "DS_ACCELERATOR"


def known_accelerator(resource: str) -> Accelerator | None:
    """Return what kind of accelerator this resource is, None if it is none that we know."""
    return next((found for name, found in ACCELERATORS.items() if fnmatchcase(resource, name)), None)


def accelerator_limits(template: PodTemplate) -> dict[str, Any]:
    """Return the accelerators that the trainer is limited to, as written; a limit of 0 is one too."""
    return {name: quantity for name, quantity in template.limits.items() if known_accelerator(name)}


def whole(quantity: object) -> int | None:
    """Return a quantity of devices as a number, None if it is none."""
    text = str(quantity)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def names_accelerator(template: PodTemplate) -> bool:
    """Say whether the trainer's resources name an accelerator. A limit of 0, or a device claim, does, too."""
    return any(map(known_accelerator, [*template.limits, *template.requests])) or bool(template.claims)


def default_resource(world: World) -> str:
    """Return what a run's job gets where its template names no accelerator, as recorded when it was accepted."""
    given = world.accelerator
    if given is None:
        return NVIDIA_GPU  # accepted by an earlier release, which knew no other default
    return given.resource or CPU


def accelerator_of(spec: DeepSpeedJobSpec, default: str) -> str | None:
    """Return what the ranks run on, in DeepSpeed's words; None where nothing tells.

    `default`: the resource of a job whose template names no accelerator, or CPU.
    """
    template = pod_template(spec)
    chosen = [variable.get("value") for variable in template.env if variable.get("name") == _CHOICE]
    if chosen and isinstance(chosen[-1], str):
        return chosen[-1]
    if not names_accelerator(template):
        known = known_accelerator(default)
        return known.name if known is not None else CPU
    limits = accelerator_limits(template)
    given = (known_accelerator(resource) for resource, quantity in limits.items() if whole(quantity) != 0)
    names = {each.name for each in given if each is not None}
    if limits and not names:
        return CPU
    return names.pop() if len(names) == 1 else None


def library_of(accelerator: str | None) -> Library | None:
    """Return the library that carries the collectives of such ranks, None where the accelerator is not known."""
    return _LIBRARIES.get(accelerator or "")
