"""Extended resources that are accelerators: one unit is one slot, which runs one rank."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from deepspeed_operator.api.untyped import object_at

DEFAULT_ACCELERATOR: Final = "nvidia.com/gpu"

# Resource name, as the vendor's device plugin registers it → vendor.
ACCELERATORS: Final[Mapping[str, str]] = {
    "nvidia.com/gpu": "NVIDIA",
    "nvidia.com/gpu.shared": "NVIDIA",
    "nvidia.com/mig-*": "NVIDIA",
    "amd.com/gpu": "AMD",
    "gpu.intel.com/i915": "Intel",
    "gpu.intel.com/xe": "Intel",
    "habana.ai/gaudi": "Intel",
    "huawei.com/Ascend*": "Huawei",
    "cambricon.com/mlu*": "Cambricon",
}


def vendor_of(resource: str) -> str | None:
    """Return whose accelerator this resource is, None if it is none that we know."""
    return next((vendor for name, vendor in ACCELERATORS.items() if fnmatchcase(resource, name)), None)


def accelerator_limits(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the accelerators that the container limits itself to, as written; a limit of 0 is one too."""
    limits = object_at(trainer, "resources", "limits")
    return {name: quantity for name, quantity in limits.items() if vendor_of(name)}


def whole(quantity: object) -> int | None:
    """Return a quantity of devices as a number, None if it is none."""
    text = str(quantity)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
