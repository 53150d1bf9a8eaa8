"""Extended resources that are accelerators: one unit is one slot, which runs one rank."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.untyped import list_at, object_at, objects_at
from deepspeed_operator.plan.trainer import trainer_of

DEFAULT_ACCELERATOR: Final = "nvidia.com/gpu"
CPU: Final = "cpu"

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

# The same resources → what DeepSpeed calls the accelerator (DS_ACCELERATOR).
_DEEPSPEED_NAMES: Final[Mapping[str, str]] = {
    "nvidia.com/*": "cuda",
    "amd.com/*": "rocm",
    "gpu.intel.com/*": "xpu",
    "habana.ai/*": "hpu",
    "huawei.com/*": "npu",
    "cambricon.com/*": "mlu",
}
_CHOICE: Final = "DS_ACCELERATOR"


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


def needs_accelerator(trainer: Mapping[str, Any]) -> bool:
    """Without a word about accelerators, a slot is a GPU. A limit of 0, or a device claim, is a word."""
    named = [*object_at(trainer, "resources", "limits"), *object_at(trainer, "resources", "requests")]
    return not any(vendor_of(name) for name in named) and not list_at(trainer, "resources", "claims")


def accelerator_of(spec: DeepSpeedJobSpec) -> str | None:
    """Return what the ranks run on, in DeepSpeed's words; None where the template does not tell."""
    trainer = trainer_of(spec.template) or {}
    chosen = [variable.get("value") for variable in objects_at(trainer, "env") if variable.get("name") == _CHOICE]
    if chosen and isinstance(chosen[-1], str):
        return chosen[-1]
    if needs_accelerator(trainer):
        return _name_of(DEFAULT_ACCELERATOR)
    limits = accelerator_limits(trainer)
    names = {_name_of(resource) for resource, quantity in limits.items() if whole(quantity) != 0}
    if limits and not names:
        return CPU
    return names.pop() if len(names) == 1 else None


def _name_of(resource: str) -> str:
    return next(name for pattern, name in _DEEPSPEED_NAMES.items() if fnmatchcase(resource, pattern))
