"""The numbers that every term of memory is made of."""

from dataclasses import dataclass
from typing import Final

from deepspeed_operator.dsconfig.advice import SUMS_AS_TOLD
from deepspeed_operator.dsconfig.offload import device_of
from deepspeed_operator.dsconfig.setup import ZERO, Setup, ZeroStage
from deepspeed_operator.plan.engine.groups import groups_of
from deepspeed_operator.plan.engine.partitioning import model_bytes, offloads, sent_bytes, trained_here
from deepspeed_operator.plan.engine.wrappers import Optimizer, Wrapper, optimizer_of, wrapper_of
from deepspeed_operator.plan.memory.activations import Activations, activations
from deepspeed_operator.plan.model.architecture import Model

FP32: Final = 4
NORM: Final = 8  # gradient norms are computed in fp64, tensor by tensor
_BUCKET: Final = 500_000_000  # DeepSpeed's default, and what stage 0 reduces at once whatever is configured
# Since then, stage 3 has a bucket for each type that it sends, of that type.
_BUCKET_AS_SENT: Final = (0, 17, 0)


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """Bytes, and what they are for."""

    what: str
    size: float


@dataclass(frozen=True)
class Sizes:
    """Of one rank. `trained`, `part`, `touched`, `bucket`: numbers of parameters; `frozen`: bytes.

    `near`: ranks among which hpZ divides a copy of the parameters, 1 without it. `part` is one rank's share, `touched`
    the tensors of which it has a part, whole, of the rank that has most. `width`, `sums` and `sent`: bytes of a
    parameter, of an accumulated gradient and of a gradient that is sent.
    """

    setup: Setup
    model: Model
    micro: int
    accumulation: int
    optimizer: Optimizer
    wrapper: Wrapper
    ranks: int
    near: int
    width: int
    sums: int
    sent: int
    trained: int
    frozen: float
    part: int
    touched: int
    bucket: int
    buckets: int
    largest: int
    activations: Activations

    @property
    def offloaded(self) -> bool:
        return offloads(self.setup)

    @property
    def parameters(self) -> float:
        """Bytes of all parameters, frozen ones included."""
        return self.trained * self.width + self.frozen

    @property
    def parameters_on_host(self) -> bool:
        return self.wrapper is Wrapper.ZERO_3 and device_of(self.setup, "offload_param") != "none"

    @property
    def gathers(self) -> bool:
        """Whether a parameter that stage 3 gathers takes memory beside the rank's part of it.

        A rank alone computes with its part, which is the whole: _no_gather_coalesced and NoGatherCoalescedHandle in
        runtime/zero/partition_parameters.py, 0.15.4 to 0.19.8. Only from the host is it copied.
        """
        return self.wrapper is Wrapper.ZERO_3 and (self.ranks > 1 or self.parameters_on_host)


def sizes_of(setup: Setup, model: Model, micro: int, accumulation: int, optimizer: Optimizer | None = None) -> Sizes:
    """Return the numbers of a configuration and a model, of which each rank may hold a part."""
    optimizer = optimizer or optimizer_of(setup)
    wrapper = wrapper_of(setup, optimizer)
    division, width = setup.division, model_bytes(setup)
    # A pipeline's first stage holds as many micro batches as there are stages, each of its share of layers.
    parts = division.tensor * division.pipeline * division.expert
    ranks = max(1, setup.world // (division.tensor * division.pipeline))
    trained = trained_here(setup, model)
    # Experts of a rank are divided among as many fewer ranks as there are ranks that divide all experts.
    part = -(-(model.trained // (division.tensor * division.pipeline) if model.experts else trained) // ranks)
    frozen_width = width if model.usage.frozen_width is None else model.usage.frozen_width
    kept = activations(model, micro, width, tensor=division.tensor, sequence=division.sequence)
    overlaps = bool(setup.value(ZERO, "overlap_comm")) and wrapper is Wrapper.ZERO
    return Sizes(
        setup=setup,
        model=model,
        micro=micro,
        accumulation=accumulation,
        optimizer=optimizer,
        wrapper=wrapper,
        ranks=ranks,
        near=groups_of(setup).near.ranks,
        width=width,
        sums=_sums(setup, wrapper, width),
        sent=sent_bytes(setup),
        trained=trained,
        frozen=(model.parameters - model.trained) * frozen_width / parts,
        part=part,
        touched=_touched([size for piece in kept.pieces for size in piece.trained], part),
        bucket=int(setup.value(ZERO, "reduce_bucket_size") or _BUCKET) if setup.stage else _BUCKET,
        buckets=2 if overlaps else 1,
        largest=max((size for piece in kept.pieces for size in piece.trained), default=0),
        activations=kept,
    )


def _touched(tensors: list[int], part: int) -> int:
    """Shares are cut from all tensors in a row: the first and the last of a share are of two ranks, or more."""
    held: dict[int, int] = {}
    most = start = 0
    for size in tensors:
        first, last = start // part, (start + size - 1) // part
        for rank in {first, last}:
            held[rank] = held.get(rank, 0) + size
        most, start = max(most, size), start + size
    return max([most, *held.values()])


def _sums(setup: Setup, wrapper: Wrapper, width: int) -> int:
    if wrapper is Wrapper.BF16 and setup.stage == ZeroStage.DISABLED:
        return FP32
    if not setup.accumulates_in_fp32:
        return width
    return width if wrapper is Wrapper.ZERO and setup.schema.numbers < SUMS_AS_TOLD else FP32


def bucket_width(sizes: Sizes) -> int:
    """Bytes of a number in stage 3's bucket."""
    return sizes.sent if sizes.setup.schema.numbers >= _BUCKET_AS_SENT else sizes.width
