"""What training needs of a pod's memory: processes, offloaded states, and what a checkpoint copies on its way.

Pinned memory is rounded up to a power of two, buffer by buffer, as PyTorch's allocator of it does.
"""

from collections.abc import Iterator
from typing import Final

from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.offload import device_of
from deepspeed_operator.dsconfig.setup import ZERO, Setup, ZeroStage
from deepspeed_operator.plan.engine.partitioning import model_bytes
from deepspeed_operator.plan.engine.wrappers import Wrapper, optimizer_of
from deepspeed_operator.plan.memory.sizes import FP32, MemoryItem, Sizes, sizes_of
from deepspeed_operator.plan.model.architecture import Model

# Resident memory of a rank with PyTorch, DeepSpeed, CUDA and NCCL, at first and after some steps: fitted on one model.
# Without ZeRO, the kernels that divide and gather are never loaded.
_NEW_PROCESS: Final = 1.45 * 2**30
_PROCESS: Final = 2.1 * 2**30
_PLAIN_PROCESS: Final = 2.0 * 2**30
_PLAIN: Final = (Wrapper.NONE, Wrapper.FP16, Wrapper.UNFUSED)
_NO_NEEDLESS_SUMS: Final = (0, 19, 0)
CHECKPOINT: Final = "copies for a checkpoint"
_SECTIONS: Final = {
    "offload_optimizer": "DeepSpeedZeroOffloadOptimizerConfig",
    "offload_param": "DeepSpeedZeroOffloadParamConfig",
}


def host_memory(setup: Setup, model: Model, micro: int, accumulation: int, slots: int) -> tuple[MemoryItem, ...]:
    """Return what the pod of rank 0 with `slots` ranks holds; what data loaders and /dev/shm take comes on top."""
    sizes = sizes_of(setup, model, micro, accumulation)
    # Before the first step, stage 3 makes its part flat by way of the host.
    flat = sizes.parameters / sizes.ranks if sizes.wrapper is Wrapper.ZERO_3 and not sizes.parameters_on_host else 0
    least = _PLAIN_PROCESS if sizes.wrapper in _PLAIN else _PROCESS
    process = least if sizes.offloaded else max(least, _NEW_PROCESS + flat)
    items = [MemoryItem("processes", process), *_offloaded(sizes)]
    whole = [MemoryItem(item.what, item.size * slots) for item in items if item.size]
    copies = max(0, _checkpoint(sizes, slots) - (process - least) * slots)
    return (*whole, MemoryItem(CHECKPOINT, copies))


def certain_host_memory(setup: Setup, model: Model, slots: int) -> float:
    """Bytes that a pod of so many ranks holds whatever else there is: offloaded states that are never pinned.

    Pinned memory is the driver's, which some kernels do not count as the container's; 0 where it is not known how much
    is offloaded, or trained.
    """
    optimizer = optimizer_of(setup)
    section = object_at(setup.zero.get("offload_optimizer"))
    share = 1.0 if section.get("ratio") is None else section["ratio"]
    others = setup.value(ZERO, "zenflow") is not None or section.get("super_offload")
    known = device_of(setup, "offload_optimizer") == "cpu" and isinstance(share, int | float) and not others
    if not known or optimizer.assumed or model.assumes("trainableParameters"):
        return 0.0
    sizes = sizes_of(setup, model, 1, 1, optimizer)
    if not sizes.offloaded:
        return 0.0
    weights = FP32 if sizes.wrapper is Wrapper.ZERO_3 else 0
    return slots * sizes.part * (optimizer.states + weights) * min(1.0, max(0.0, share))


def loading(setup: Setup, model: Model, slots: int) -> float:
    """Bytes that a pod's ranks hold at stage 3 while each loads the whole model, as without zero.Init they do.

    What is quantized is not counted.
    """
    counted = setup.stage == ZeroStage.PARAMETERS and model.usage.quantized is None
    return float(slots * model.parameters * model_bytes(setup)) if counted else 0.0


def _offloaded(sizes: Sizes) -> Iterator[MemoryItem]:
    setup, part = sizes.setup, sizes.part
    optimizer, parameters = (_Pinned(setup, section) for section in _SECTIONS)
    if sizes.parameters_on_host:
        yield MemoryItem("parameters, offloaded", parameters.size(sizes.parameters / sizes.ranks))
        near = sizes.parameters / sizes.near if sizes.near > 1 else 0
        yield MemoryItem("hpZ's copy of the parameters, divided", parameters.size(near))
    if not sizes.offloaded:
        return
    yield MemoryItem("optimizer states, offloaded", part * sizes.optimizer.states)
    yield MemoryItem("gradients in fp32", optimizer.size(part * FP32))
    if sizes.wrapper is Wrapper.ZERO_3:
        yield MemoryItem("parameters in fp32, offloaded", part * FP32)
        yield MemoryItem("gradients", optimizer.size(part * sizes.sums))
        yield MemoryItem("parameters on their way to the GPU", part * sizes.width)
        return
    yield MemoryItem("parameters in fp32, offloaded", optimizer.size(part * FP32))
    yield MemoryItem("parameters on their way to the GPU", optimizer.size(part * sizes.width))
    buffers = optimizer.size(sizes.largest * sizes.width)
    if _accumulates_here(sizes):
        tensors = (size for piece in sizes.activations.pieces for size in piece.trained)
        buffers += sum(optimizer.size(size * sizes.width) for size in tensors) / sizes.ranks
    yield MemoryItem("gradients", buffers)


def _accumulates_here(sizes: Sizes) -> bool:
    """Whether the host has buffers in which gradients accumulate.

    Stage 1 reduces once a step, when all of it is summed: older versions had them there, too, and needed none.
    """
    return sizes.accumulation > 1 and (
        sizes.setup.stage >= ZeroStage.GRADIENTS or sizes.setup.schema.numbers < _NO_NEEDLESS_SUMS
    )


def _checkpoint(sizes: Sizes, slots: int) -> float:
    """torch.save copies one tensor's storage after the other from the GPU: the flat ones are the largest."""
    whole = sizes.trained * sizes.width
    if sizes.wrapper in _PLAIN:
        return sizes.trained * FP32 if sizes.wrapper is Wrapper.FP16 else sizes.largest * FP32
    own = 0 if sizes.offloaded else sizes.part * FP32
    first = own if sizes.wrapper is Wrapper.ZERO_3 else max(own, whole)
    return first + own * (slots - 1)


class _Pinned:
    """Whether a section of zero_optimization pins what it holds, and the bytes that this takes."""

    def __init__(self, setup: Setup, section: str) -> None:
        given = object_at(setup.zero.get(section)).get("pin_memory")
        default = setup.schema.models[_SECTIONS[section]]["fields"]["pin_memory"]["default"]
        self._pins = bool(default if given is None else given)

    def size(self, size: float) -> float:
        return 1 << (round(size) - 1).bit_length() if self._pins and size >= 1 else size
