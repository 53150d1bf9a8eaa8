"""What one rank passes to collectives in one optimizer step. Counted from the code: the papers' volumes are smaller.

The terms are compared with DeepSpeed's own calls in tests/oracle/test_traffic.py. What is not compared there makes the
total a lower bound, and is named in `unproven`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from deepspeed_operator.dsconfig.setup import ZERO, Setup
from deepspeed_operator.plan.gathers import Gather, Limits, gathered, persistent
from deepspeed_operator.plan.groups import Group, Groups, groups_of
from deepspeed_operator.plan.model import Model, Tensor
from deepspeed_operator.plan.shared_activations import activation_terms
from deepspeed_operator.plan.terms import ALL_GATHER, ALL_REDUCE, REDUCE, REDUCE_SCATTER, Term
from deepspeed_operator.plan.unproven import device_of, unproven

_BYTES: Final = {"fp32": 4, "fp16": 2, "bf16": 2}


@dataclass(frozen=True, slots=True)
class Traffic:
    """`ranks` see different samples."""

    ranks: int
    terms: tuple[Term, ...]
    unproven: tuple[str, ...]

    def payload(self) -> dict[str, int]:
        """Return the payload of each collective."""
        totals: Counter[str] = Counter()
        for term in self.terms:
            totals[term.collective] += term.payload
        return dict(totals)

    def payload_by_size(self) -> dict[tuple[str, int], int]:
        """Return the payload of each collective and number of ranks."""
        totals: Counter[tuple[str, int]] = Counter()
        for term in self.terms:
            totals[term.collective, term.group.ranks] += term.payload
        return dict(totals)

    @property
    def wire(self) -> float:
        """Bytes that pass each way through a rank's link, inside its node or out of it."""
        return sum(term.wire for term in self.terms)

    @property
    def between_nodes(self) -> float:
        """Bytes that pass each way through a node's network."""
        return sum(term.between_nodes for term in self.terms)


def communication(
    setup: Setup, model: Model, accumulation: int, *, micro: int = 1, slots: int | None = None
) -> Traffic:
    """Return what a step of `accumulation` micro steps of `micro` samples costs, with `slots` ranks on a node."""
    groups, width = groups_of(setup, slots), model_bytes(setup)
    activations = activation_terms(setup, model, groups, width=width, micro=micro, accumulation=accumulation)
    terms = (*_terms(setup, model, accumulation, groups), *activations)
    ranks = setup.data_ranks
    return Traffic(ranks, tuple(term for term in terms if term.group.ranks > 1), tuple(unproven(setup, model)))


def model_bytes(setup: Setup) -> int:
    """Bytes of a parameter as the model computes with it."""
    return 2 if setup.bf16 or setup.fp16 else 4


def sent_bytes(setup: Setup) -> int:
    """Bytes of a gradient as it is sent."""
    asked = setup.plain("communication_data_type")
    return _BYTES.get(str(asked).lower(), model_bytes(setup)) if asked else model_bytes(setup)


def _terms(setup: Setup, model: Model, accumulation: int, groups: Groups) -> Iterator[Term]:
    if setup.stage == 3:
        yield from _stage_3(setup, model, accumulation, groups)
        yield _scattered(setup, trained_here(setup, model), accumulation, groups.data)
        return
    experts = _own_experts(setup, model)
    yield from _reduced_together(setup, trained_here(setup, model) - experts, accumulation, groups.data)
    if experts:
        for term in _reduced_together(setup, experts, accumulation, groups.replicas):
            yield replace(term, what=f"experts' {term.what}")


def _reduced_together(setup: Setup, trained: int, accumulation: int, group: Group) -> Iterator[Term]:
    """Yield what ranks of one group pass on that all train the same parameters, up to stage 2."""
    stage, width = setup.stage, model_bytes(setup)
    reduced, buckets = trained * sent_bytes(setup), _buckets(setup, trained)
    if stage == 0:
        yield Term(ALL_REDUCE, reduced, "gradients, once a step", group, buckets)
        if replaced_by_bf16_optimizer(setup):
            yield Term(ALL_GATHER, trained * width, "parameters after the step", group, after=True)
        return
    times = accumulation if stage == 2 else 1
    how = f"gradients, at each of {accumulation} micro steps" if stage == 2 else "gradients, once a step"
    collective = REDUCE if to_single_ranks(setup) else ALL_REDUCE
    yield Term(collective, reduced * times, how, group, buckets * times)
    gathers = -(-trained // int(setup.value(ZERO, "allgather_bucket_size") or _BUCKET))
    yield Term(ALL_GATHER, trained * width, "parameters after the step", group, gathers, after=True)


def _scattered(setup: Setup, trained: int, accumulation: int, group: Group) -> Term:
    payload = trained * sent_bytes(setup) * accumulation
    payload //= _QUANTIZED_GRADIENTS if setup.on(ZERO, "zero_quantized_gradients") else 1
    how = f"gradients, at each of {accumulation} micro steps"
    return Term(REDUCE_SCATTER, payload, how, group, _buckets(setup, trained) * accumulation)


def _buckets(setup: Setup, trained: int) -> int:
    return -(-trained // int(setup.value(ZERO, "reduce_bucket_size") or _BUCKET))


def trained_here(setup: Setup, model: Model) -> int:
    """Return the trained parameters of which a rank computes gradients."""
    if model.experts is None:
        return -(-model.trained // _parts(setup))
    shared = (model.trained - model.experts.total) // (setup.division.tensor * setup.division.pipeline)
    return shared + _own_experts(setup, model)


def _own_experts(setup: Setup, model: Model) -> int:
    return model.experts.total // _parts(setup) if model.experts is not None else 0


def _parts(setup: Setup) -> int:
    """How many ranks divide the model at most: what all of them hold is left out."""
    division = setup.division
    return division.tensor * division.pipeline * division.expert


def to_single_ranks(setup: Setup) -> bool:
    """Whether parts of a bucket are reduced to the ranks that own them, and not all to all."""
    asked = setup.on(ZERO, "reduce_scatter") and not setup.on(ZERO, "use_multi_rank_bucket_allreduce")
    return asked and setup.on(ZERO, "contiguous_gradients") and not summed_by_bf16_optimizer(setup)


def _stage_3(setup: Setup, model: Model, accumulation: int, groups: Groups) -> Iterator[Term]:
    # int8 is half of what is gathered in 16 bits; its scales come on top.
    width = model_bytes(setup) // (2 if setup.on(ZERO, "zero_quantized_weights") else 1)
    parts, ranks = _parts(setup), groups.data.ranks
    if not model.modules:
        # Without modules: what is gathered at least, once for forward and backward.
        payload = model.parameters // parts * accumulation * width
        yield Term(ALL_GATHER, payload, f"parameters, at each of {accumulation} micro steps", groups.data)
        return
    kept, gathers = simulated(setup, model, accumulation)
    far, near = _far_and_near(gathers) if groups.near.ranks > 1 else (gathers, ())
    how = "parameters, once a step" if near else f"parameters, at each of {accumulation} micro steps"
    yield Term(ALL_GATHER, _elements(far, ranks) // parts * width, how, groups.data, len(far))
    if near:
        size = _elements(near, ranks) // parts * width
        yield Term(ALL_GATHER, size, "parameters, from the copy near by", groups.near, len(near))
    held = sum(_padded(tensor.elements, ranks) for tensor in kept)
    if held:
        yield Term(ALL_GATHER, held // parts * width, "small parameters, once a step", groups.data, after=True)


def simulated(setup: Setup, model: Model, accumulation: int) -> tuple[frozenset[Tensor], tuple[Gather, ...]]:
    """Return the parameters that stay whole, and what stage 3 gathers in a step of a model whose modules are known."""
    kept = kept_whole(setup, model)
    return kept, gathered(model.modules, kept, limits_of(setup), accumulation, first_stays=first_stays(setup))


def kept_whole(setup: Setup, model: Model) -> frozenset[Tensor]:
    """Return the parameters that stage 3 leaves whole on every rank."""
    return persistent(model.modules, *(int(setup.value(ZERO, name)) for name in _PERSISTENCE))


def limits_of(setup: Setup) -> Limits:
    """Return what bounds the parameters that stage 3 has gathered."""
    return Limits(*(int(setup.value(ZERO, name)) for name in _LIMITS))


def first_stays(setup: Setup) -> bool:
    """Whether stage 3 keeps the first module's parameters after a backward pass."""
    return setup.schema.numbers < _RELEASES_FIRST_MODULE


def _far_and_near(gathers: Sequence[Gather]) -> tuple[Sequence[Gather], Sequence[Gather]]:
    """Divide by whether a part of each parameter is near by: once it was gathered after a step; frozen ones always."""
    seen: set[Tensor] = set()
    far: list[Gather] = []
    near: list[Gather] = []
    for gather in gathers:
        missing = tuple(tensor for tensor in gather if tensor.trained and tensor not in seen)
        there = tuple(tensor for tensor in gather if tensor not in missing)
        far += [missing] if missing else []
        near += [there] if there else []
        seen.update(gather)
    return far, near


def _elements(gathers: Sequence[Gather], ranks: int) -> int:
    return sum(_padded(tensor.elements, ranks) for gather in gathers for tensor in gather)


# DeepSpeed's own default, where a stage knows no such key.
_BUCKET: Final = 500_000_000
# int4 beside 16 bits; its scales come on top.
_QUANTIZED_GRADIENTS: Final = 4
# The first version known to let go of the first module after a backward pass.
_RELEASES_FIRST_MODULE: Final = (0, 19, 8)
_LIMITS: Final = ("max_live_parameters", "max_reuse_distance", "prefetch_bucket_size")
_PERSISTENCE: Final = ("param_persistence_threshold", "model_persistence_threshold")


def _padded(elements: int, ranks: int) -> int:
    return -(-elements // ranks) * ranks


def replaced_by_bf16_optimizer(setup: Setup) -> bool:
    """Whether stage 0 in bf16 partitions the optimizer's state all the same: up to 0.16, there is no other wrapper."""
    return setup.stage == 0 and setup.bf16 and setup.schema.numbers < (0, 17, 0)


def summed_by_bf16_optimizer(setup: Setup) -> bool:
    """Whether stage 1 is done by BF16_Optimizer, which knows none of ZeRO's options."""
    return setup.stage == 1 and setup.bf16 and setup.accumulates_in_fp32 and not offloads(setup)


def offloads(setup: Setup) -> bool:
    device = device_of(setup, "offload_optimizer")
    return setup.stage > 0 and (device not in (None, "none") or setup.on(ZERO, "cpu_offload"))
