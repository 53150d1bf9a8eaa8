"""The GPUs that a job's ranks get: as its spec says, as its template demands them, or as nodes' labels tell."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from deepspeed_operator.api.quantity import bytes_of
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.job.accelerators import ACCELERATORS, NVIDIA_GPU, accelerator_limits, accelerator_of, whole
from deepspeed_operator.job.data_sheets import DEVICES, Device
from deepspeed_operator.job.node_selection import INSTANCE_TYPE, Demand, LabelledNode
from deepspeed_operator.job.provenance import Source
from deepspeed_operator.job.template import pod_template
from deepspeed_operator.job.world import world_of

_MIB: Final = 2**20
# Labels with any other value say that pods share a GPU, or that it is cut: what a whole one has tells nothing.
_SHARED: Final = (
    ("nvidia.com/gpu.sharing-strategy", "none"),
    ("cloud.google.com/gke-gpu-sharing-strategy", ""),
    ("cloud.google.com/gke-gpu-partition-size", ""),
)
# Values of nvidia.com/gpu.product and of clouds' labels → what it is, without cut and shared ones.
_PRODUCTS: Final = {
    "*-MIG-*": None,
    "*-SHARED": None,
    "*[!G]H200*": "H200-141G",
    "*[!G]B200*": "B200-180G",
    "*[!G]H100*NVL*": "H100-NVL-94G",
    "*[!G]H100*": "H100-80G",
    "*A100*40G*": "A100-40G",
    "*A100*80G*": "A100-80G",
    "*TESLA-A100": "A100-40G",
    "*L40S*": "L40S-48G",
    "*L4": "L4-24G",
    "*A10": "A10-24G",
    "*A10G": "A10-24G",  # slower than an A10, with the same memory
    "*V100*32G*": "V100-32G",
    "*V100*": "V100-16G",
    "*T4": "T4-16G",
    "*RTX-5090": "RTX5090-32G",
    "*RTX-4090": "RTX4090-24G",
    "*RTX-3090": "RTX3090-24G",
    "*RTX-A6000": "A6000-48G",
    "*RTX-A5000": "A5000-24G",
}
# Machines that have whole GPUs, all of one kind, as AWS, Azure and Oracle list them; GKE has a label for each GPU.
_MACHINES: Final = {
    "p3.*": "V100-16G",
    "p3dn.24xlarge": "V100-32G",
    "p4d.24xlarge": "A100-40G",
    "p4de.24xlarge": "A100-80G",
    "p5.*": "H100-80G",
    "p5e.*": "H200-141G",
    "p5en.*": "H200-141G",
    "p6-b200.*": "B200-180G",
    "g4dn.*": "T4-16G",
    "g5.*": "A10-24G",
    "g6.*": "L4-24G",
    "gr6.*": "L4-24G",
    "g6e.*": "L40S-48G",
    "Standard_ND40rs_v2": "V100-32G",
    "Standard_ND96asr_v4": "A100-40G",
    "Standard_ND96amsr_A100_v4": "A100-80G",
    "Standard_NC*ads_A100_v4": "A100-80G",
    "Standard_ND96isr_H100_v5": "H100-80G",
    "Standard_ND96isr_H200_v5": "H200-141G",
    "Standard_NC*_H100_v5": "H100-NVL-94G",
    "Standard_NC*as_T4_v3": "T4-16G",
    "BM.GPU4.8": "A100-40G",
    "BM.GPU.A100-v2.8": "A100-80G",
    "BM.GPU.H100.8": "H100-80G",
    "BM.GPU.H200.8": "H200-141G",
    "BM.GPU.B200.8": "B200-180G",
}
# By the label: the first of them that a node has names its GPUs.
_TABLES: Final[Mapping[str, Mapping[str, str | None]]] = {
    "nvidia.com/gpu.product": _PRODUCTS,
    "cloud.google.com/gke-accelerator": _PRODUCTS,
    INSTANCE_TYPE: _MACHINES,
}


@dataclass(frozen=True, slots=True, order=True)
class Gpu:
    """A kind of GPU by its name on a label; `memory` in bytes as the driver reports it, 0 if no label tells it."""

    memory: int
    name: str

    @property
    def device(self) -> Device | None:
        """What its data sheet says, None where its name is in no table here."""
        return next((found for label in _TABLES if (found := _device(label, self.name)) is not None), None)

    @property
    def is_whole(self) -> bool:
        """Whether the data sheet is of it, links included: it is no PCIe card of a kind with NVLink, and no share."""
        device = self.device
        return device is not None and device.has(self.memory) and "PCIE" not in self.name.upper()


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs of which each rank gets one, the smallest first, and who says so."""

    kinds: tuple[Gpu, ...]
    source: Source

    @property
    def smallest(self) -> int:
        return self.kinds[0].memory

    @property
    def largest(self) -> int:
        return self.kinds[-1].memory

    @property
    def device(self) -> Device | None:
        """What all of them are, whole and with the links of its data sheet; None where that is not known."""
        found = {kind.device if kind.is_whole else None for kind in self.kinds}
        return found.pop() if len(found) == 1 else None

    def source_of(self, memory: int) -> str:
        """Return who says that a GPU has this memory, the smallest or the largest, and of which GPUs."""
        names = ", ".join(sorted({kind.name for kind in self.kinds} - {""}))
        of_several = "the smallest of " if memory == self.smallest else "the largest of "
        which = of_several if self.smallest != self.largest else ""
        return f"{self.source.value}: {which}{names}" if names else self.source.value


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """By what a node is known on which a pod with `slots` of this resource may land."""

    demand: Demand
    resource: str
    slots: int

    @property
    def memory_label(self) -> str:
        return f"{self.resource}.memory"

    @property
    def is_whole(self) -> bool:
        """Whether a slot is a GPU, not a part of one."""
        return self.resource == NVIDIA_GPU

    def kinds(self, nodes: Iterable[LabelledNode]) -> tuple[Gpu, ...]:
        """Return the kinds of GPUs of such nodes, the smallest first; nodes without a word of a GPU have none."""
        found = {self._kind(node.labels) for node in nodes if self._has_room(node) and self.demand.admits(node)}
        return tuple(sorted(kind for kind in found if kind is not None))

    def _has_room(self, node: LabelledNode) -> bool:
        count = whole(node.labels.get(f"{self.resource}.count"))
        return count is None or count >= self.slots

    def _kind(self, labels: Mapping[str, str]) -> Gpu | None:
        memory = labels.get(self.memory_label)
        if not self.is_whole:
            return Gpu(_mebibytes(memory), self.resource) if memory is not None else None
        named = [(label, labels[label]) for label in _TABLES if label in labels]
        named = [(label, name) for label, name in named if label != INSTANCE_TYPE or _size(label, name)]
        if memory is None and not named:
            return None
        label, name = named[0] if named else ("", "")
        if name.endswith("-SHARED") or any(labels.get(each, unshared) != unshared for each, unshared in _SHARED):
            return Gpu(0, name)
        return Gpu(_mebibytes(memory) or _size(label, name), name)


def gpu_request(spec: DeepSpeedJobSpec, default: str) -> GpuRequest | None:
    """Return by what the job's nodes are known, None where no label tells what a rank gets.

    `default`: the resource of a job whose template names no accelerator, or CPU.
    """
    resources = list(accelerator_limits(pod_template(spec))) or [default]
    if accelerator_of(spec, default) != ACCELERATORS[NVIDIA_GPU].name or len(resources) > 1:
        return None
    return GpuRequest(pod_template(spec).demand, resources[0], world_of(spec).slots_per_node)


def declared_gpus(spec: DeepSpeedJobSpec, default: str) -> Gpus | None:
    """Return the GPUs as spec says them, else as the template's demands on nodes do; None if they do not."""
    said = bytes_of(spec.gpu_memory) if spec.gpu_memory is not None else None
    if said is not None:
        return Gpus((Gpu(said, ""),), Source.DECLARED)
    request = gpu_request(spec, default)
    if request is None:
        return None
    memory = {Gpu(_mebibytes(value), "") for label, value in request.demand.labels() if label == request.memory_label}
    kinds = sorted(kind for kind in memory or demanded_gpus(spec, default) if kind.memory)
    return Gpus(tuple(kinds), Source.DECLARED) if kinds else None


def demanded_gpus(spec: DeepSpeedJobSpec, default: str) -> tuple[Gpu, ...]:
    """Return the kinds of whole GPUs that the template's demands on nodes name, the smallest first.

    One that no table knows has memory 0. A kind of machine that none knows names no GPU.
    """
    request = gpu_request(spec, default)
    if request is None or not request.is_whole:
        return ()
    labels = ((label, name) for label, name in request.demand.labels() if label in _TABLES)
    kinds = {Gpu(_size(label, name), name) for label, name in labels if label != INSTANCE_TYPE or _size(label, name)}
    return tuple(sorted(kinds))


def _size(label: str, name: str) -> int:
    """Return the bytes of a GPU of a node with this label; 0 if it does not tell."""
    device = _device(label, name)
    return device.memory if device is not None else 0


def _device(label: str, name: str) -> Device | None:
    name = name if label == INSTANCE_TYPE else name.upper()
    found = next((device for pattern, device in _TABLES.get(label, {}).items() if fnmatchcase(name, pattern)), None)
    return DEVICES[found] if found is not None else None


def _mebibytes(text: str | None) -> int:
    return (whole(text) or 0) * _MIB
