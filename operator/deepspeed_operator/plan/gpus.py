"""Memory of the GPUs that a job's template asks for by a node's labels."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from deepspeed_operator.api.quantity import bytes_of
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.untyped import Json, object_at, objects_at

_MIB: Final = 2**20
# MiB that the driver reports, as the label nvidia.com/gpu.memory has it, by nvidia.com/gpu.product or a cloud's name.
_PRODUCTS: Final = {
    "*H200*": 143_771,
    "*B200*": 183_359,
    "*H100*NVL*": 95_830,
    "*H100*": 81_559,
    "*A100*40G*": 40_960,
    "*A100*80G*": 81_920,
    "*TESLA-A100": 40_960,
    "*L40S*": 46_068,
    "*L4": 23_034,
    "*A10": 23_028,
    "*A10G": 23_028,
    "*V100*32G*": 32_768,
    "*V100*": 16_384,
    "*T4": 15_360,
}
_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
_PRODUCT_LABELS: Final = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")


def gpu_memory(spec: DeepSpeedJobSpec) -> int | None:
    """Return the bytes of one GPU: as spec says it, else as the template's demands on nodes do; None if they do not."""
    if spec.gpu_memory is not None:
        return bytes_of(spec.gpu_memory)
    sizes = {size for label, value in demanded_labels(spec.template) if (size := _size(label, value)) is not None}
    return min(sizes, default=None)


def demanded_labels(template: Json | None) -> Iterator[tuple[str, str]]:
    """Yield the labels that a node must have; where it may have one of several values, each of them."""
    for label, value in object_at(template, "spec", "nodeSelector").items():
        yield label, str(value)
    required = object_at(template, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    for term in objects_at(required, "nodeSelectorTerms"):
        for expression in objects_at(term, "matchExpressions"):
            values = expression.get("values")
            if expression.get("operator") == "In" and isinstance(values, list):
                yield from ((str(expression.get("key")), str(value)) for value in values)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] -- anything may be there


def _size(label: str, value: str) -> int | None:
    if label == _MEMORY_LABEL:
        return int(value) * _MIB if value.isascii() and value.isdigit() and len(value) < 10 else None
    if label not in _PRODUCT_LABELS:
        return None
    name = value.upper()
    return next((size * _MIB for pattern, size in _PRODUCTS.items() if fnmatchcase(name, pattern)), None)
