"""The GPU that a plan is for: as the command line says it, else the job, else what is usual."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.job.accelerators import CPU, NVIDIA_GPU, accelerator_limits, accelerator_of, whole
from deepspeed_operator.job.data_sheets import DEVICES, USUAL, Device
from deepspeed_operator.job.gpus import Gpu, Gpus, declared_gpus, demanded_gpus, gpu_request
from deepspeed_operator.job.provenance import Fact, Source
from deepspeed_operator.job.template import pod_template
from deepspeed_operator.job.units import GIB

# A plan of a job that names no accelerator is one for GPUs: whoever asks for a plan of CPUs can say so.
_SILENT: Final = NVIDIA_GPU


@dataclass(frozen=True, slots=True)
class Ranks:
    """What each rank computes on. `gpus`: whose memory it has, None where nothing is known of it; `device`: how fast it
    is, None for what no data sheet here describes, which `name` then names.
    """

    gpus: Gpus | None
    device: Device | None
    name: str
    source: Source

    @property
    def facts(self) -> Iterator[Fact]:
        same = self.device is not None and self.gpus is not None and self.gpus.smallest == self.device.memory
        if self.gpus is not None and not same:
            yield Fact("memory of a GPU, GiB", round(self.gpus.smallest / GIB, 1), self.gpus.source)
        what = "device" if self.device is None else "GPU" if same else "speed of a GPU"
        yield Fact(what, self.name, self.source)


def ranks_of(arguments: argparse.Namespace, spec: DeepSpeedJobSpec | None) -> Ranks:
    """Return what is known of the GPUs: options win over the job, and a job over what is usual."""
    device, name, source = _device(arguments, spec)
    return Ranks(_memory(arguments, spec, device), device, name, source)


def _device(arguments: argparse.Namespace, spec: DeepSpeedJobSpec | None) -> tuple[Device | None, str, Source]:
    if arguments.gpu is not None:
        return DEVICES[arguments.gpu], arguments.gpu, Source.DECLARED
    if spec is None:
        return USUAL, USUAL.name, Source.ASSUMED
    request = gpu_request(spec, _SILENT)
    if request is None or not request.is_whole:
        return None, _named(spec), Source.DECLARED
    kinds = demanded_gpus(spec, _SILENT)
    unknown = [kind.name for kind in kinds if kind.device is None]
    if unknown:
        return None, ", ".join(unknown), Source.DECLARED
    devices = dict.fromkeys(kind.device for kind in kinds if kind.device is not None)
    smallest = next(iter(devices), USUAL)
    # Of several, nobody says which one the ranks get.
    return smallest, smallest.name, Source.DECLARED if len(devices) == 1 else Source.ASSUMED


def _named(spec: DeepSpeedJobSpec) -> str:
    """Return what the template calls devices that are no whole GPUs of NVIDIA's."""
    accelerator = accelerator_of(spec, _SILENT)
    if accelerator == CPU:
        return "CPUs"
    limits = accelerator_limits(pod_template(spec))
    return (
        ", ".join(name for name, quantity in limits.items() if whole(quantity) != 0)
        or accelerator
        or "a claimed device"
    )


def _memory(arguments: argparse.Namespace, spec: DeepSpeedJobSpec | None, device: Device | None) -> Gpus | None:
    if arguments.gpu_memory is not None:
        return Gpus((Gpu(round(arguments.gpu_memory * GIB), ""),), Source.DECLARED)
    if arguments.gpu is not None and device is not None:
        return Gpus((Gpu(device.memory, device.name),), Source.DECLARED)
    said = declared_gpus(spec, _SILENT) if spec is not None else None
    if said is not None or device is None:
        return said
    return Gpus((Gpu(device.memory, device.name),), Source.ASSUMED)
