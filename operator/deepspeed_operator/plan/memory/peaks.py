"""What training needs of a GPU's memory: the peak of each phase, made of what is there at that moment.

docs/memory.md says what was measured. What PyTorch's allocator does not see is `outside`, and no part of a phase.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from deepspeed_operator.dsconfig.setup import ZERO, Setup
from deepspeed_operator.job.units import GIB
from deepspeed_operator.plan.engine.gathers import first_stays, kept_whole, limits_of, live
from deepspeed_operator.plan.engine.wrappers import Optimizer, Wrapper
from deepspeed_operator.plan.memory import states
from deepspeed_operator.plan.memory.backward import backward, gradients_of
from deepspeed_operator.plan.memory.sizes import MemoryItem, Sizes, sizes_of
from deepspeed_operator.plan.model.architecture import Model

# Measured on H100s and H200s: 1.3 GiB for a rank alone, 1.75 to 2.1 GiB where there are others.
_ALONE: Final = MemoryItem("CUDA context", 1.3 * GIB)
_AMONG_OTHERS: Final = MemoryItem("CUDA context and NCCL", 2 * GIB)


# One for each of the two threads that compute, as PyTorch sizes them on Hopper; smaller on others. Measured.
_WORKSPACES: Final = MemoryItem("cuBLAS workspaces", 64 * 2**20)


class PhaseName(StrEnum):
    """The phases of training, in their order."""

    INIT = "initialization"
    FORWARD = "forward pass"
    BACKWARD = "backward pass and reduction"
    STEP = "optimizer step"
    SAVE = "checkpoint save"


@dataclass(frozen=True, slots=True)
class MemoryPhase:
    """What is there at its worst moment; bytes."""

    name: PhaseName
    items: tuple[MemoryItem, ...]

    @property
    def size(self) -> int:
        return round(sum(item.size for item in self.items))

    @property
    def largest(self) -> MemoryItem:
        return max(self.items, key=lambda item: item.size)


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one GPU, as torch.cuda.max_memory_allocated counts it.

    `roomy`: initialization where memory is not short. What DeepSpeed puts on the GPU only then is no part of `phases`:
    it never decides whether a job fits.
    """

    phases: tuple[MemoryPhase, ...]
    outside: MemoryItem
    roomy: MemoryPhase

    @property
    def peak(self) -> MemoryPhase:
        return max(self.phases, key=lambda phase: phase.size)

    @property
    def items(self) -> tuple[MemoryItem, ...]:
        """What the largest phase is made of."""
        return self.peak.items

    @property
    def size(self) -> int:
        """Bytes that the largest phase takes of the allocator."""
        return self.peak.size

    @property
    def needed(self) -> int:
        """Bytes of the GPU."""
        return self.size + round(self.outside.size)

    def allocated(self, capacity: int | None) -> int:
        """Return the peak that the allocator counts on a GPU of `capacity` bytes; None: unknown, and taken as short."""
        has_room = capacity is not None and self.roomy.size + self.outside.size <= capacity
        return max(self.size, self.roomy.size) if has_room else self.size


def memory(
    setup: Setup, model: Model, micro: int = 1, accumulation: int = 1, *, optimizer: Optimizer | None = None
) -> Memory:
    """Return what steps of `accumulation` micro steps of `micro` samples need."""
    sizes = sizes_of(setup, model, micro, accumulation, optimizer)
    phases = tuple(MemoryPhase(name, tuple(_merged(items))) for name, items in _phases(sizes))
    roomy = MemoryPhase(PhaseName.INIT, tuple(_merged(states.making_with_room(sizes))))
    return Memory(phases, _ALONE if setup.world == 1 else _AMONG_OTHERS, roomy)


def _phases(sizes: Sizes) -> Iterator[tuple[PhaseName, list[MemoryItem]]]:
    held, gathered, near = states.states(sizes), _gathered(sizes), states.near_copy(sizes)
    middle = len(gathered) // 2
    yield PhaseName.INIT, [*states.making(sizes), near]
    saved = [*held, _WORKSPACES]
    held += [_WORKSPACES, near]
    yield PhaseName.FORWARD, [*held, *_forward(sizes, gathered[:middle])]
    passes = [backward(sizes, gathered[middle:], last=True)]
    if sizes.accumulation > 1:
        passes.append(backward(sizes, gathered[middle:], last=False))
    there = [item for item in held if item.what != "gradients"]
    yield PhaseName.BACKWARD, [*there, *states.most(*passes), *_gather_copies(sizes)]
    yield PhaseName.STEP, [*states.stepping(sizes), _WORKSPACES, near]
    yield PhaseName.SAVE, saved


def _forward(sizes: Sizes, gathered: tuple[int, ...]) -> Iterator[MemoryItem]:
    kept = sizes.activations
    yield MemoryItem("activations", kept.kept)
    yield MemoryItem("loss and logits", kept.forward)
    waiting = gradients_of(sizes, last=True)
    yield MemoryItem("gradients", waiting.held)
    yield MemoryItem("reduce bucket", waiting.bucket)
    yield MemoryItem("gathered parameters", (gathered[-1] if gathered else 0) * sizes.width)
    yield from _gather_copies(sizes)


def _gathered(sizes: Sizes) -> tuple[int, ...]:
    """Parameters that stage 3 holds whole, at each module of the forward and the backward pass."""
    if not sizes.gathers:
        return ()
    setup, model = sizes.setup, sizes.model
    limits = limits_of(setup)
    if not model.modules:
        # At most what the limit allows, and the module that is computed beyond it.
        return (min(model.parameters, limits.live + sizes.largest),) * 2 * len(sizes.activations.pieces)
    kept, accumulates = kept_whole(setup, model), sizes.accumulation > 1
    return live(model.modules, kept, limits, accumulates=accumulates, first_stays=first_stays(setup))


def _gather_copies(sizes: Sizes) -> Iterator[MemoryItem]:
    """Several ranks gather several parameters into one buffer, and each is copied out of it."""
    if sizes.wrapper is Wrapper.ZERO_3 and sizes.ranks > 1:
        prefetched = int(sizes.setup.value(ZERO, "prefetch_bucket_size"))
        yield MemoryItem("gather buffer", min(prefetched, sizes.model.parameters) * sizes.width)


def _merged(items: list[MemoryItem]) -> Iterator[MemoryItem]:
    """One item for each kind, the largest first."""
    merged: dict[str, MemoryItem] = {}
    for item in items:
        if item.size:
            before = merged.get(item.what)
            merged[item.what] = replace(item, size=item.size + before.size) if before else item
    yield from sorted(merged.values(), key=lambda item: -item.size)
