"""What one rank passes to collectives in one optimizer step. Counted from the code: the papers' volumes are smaller.

The terms are compared with DeepSpeed's own calls in tests/oracle/test_traffic.py. What is not compared there makes the
total a lower bound, and is named in `unproven`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from deepspeed_operator.dsconfig.setup import ZERO, Setup, ZeroStage
from deepspeed_operator.plan.engine.gathers import Again, Gather, computed_again, simulated
from deepspeed_operator.plan.engine.groups import Group, Groups, groups_of
from deepspeed_operator.plan.engine.partitioning import (
    gather_buckets,
    model_bytes,
    model_parts,
    own_experts,
    reduce_buckets,
    replaced_by_bf16_optimizer,
    sent_bytes,
    to_single_ranks,
    trained_here,
)
from deepspeed_operator.plan.model.architecture import Model, Tensor
from deepspeed_operator.plan.traffic.collectives import ALL_GATHER, ALL_REDUCE, REDUCE, REDUCE_SCATTER, Term
from deepspeed_operator.plan.traffic.shared_activations import activation_terms
from deepspeed_operator.plan.traffic.unproven import unproven

# int4 beside 16 bits; its scales come on top.
_QUANTIZED_GRADIENTS: Final = 4


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

    @property
    def wire(self) -> float:
        """Bytes that pass each way through a rank's link, inside its node or out of it."""
        return sum(term.wire for term in self.terms)

    @property
    def between_nodes(self) -> float:
        """Bytes that pass each way through a node's network."""
        return sum(term.between_nodes for term in self.terms)


def communication(
    setup: Setup,
    model: Model,
    accumulation: int,
    *,
    micro: int = 1,
    slots: int | None = None,
    again: Again | None = None,
) -> Traffic:
    """Return what a step of `accumulation` micro steps of `micro` samples costs, with `slots` ranks on a node.

    `again`: how a layer is computed a second time where it is; None: in the way in which stage 3 gathers most.
    """
    groups, width = groups_of(setup, slots), model_bytes(setup)
    activations = activation_terms(setup, model, groups, width=width, micro=micro, accumulation=accumulation)
    again = again or computed_again(model)[0]
    terms = (*_terms(setup, model, accumulation, groups, again), *activations)
    ranks = setup.data_ranks
    return Traffic(ranks, tuple(term for term in terms if term.group.ranks > 1), tuple(unproven(setup, model)))


def _terms(setup: Setup, model: Model, accumulation: int, groups: Groups, again: Again) -> Iterator[Term]:
    if setup.stage == ZeroStage.PARAMETERS:
        yield from _stage_3(setup, model, accumulation, groups, again)
        yield _scattered(setup, trained_here(setup, model), accumulation, groups.data)
        return
    experts = own_experts(setup, model)
    yield from _reduced_together(setup, trained_here(setup, model) - experts, accumulation, groups.data)
    if experts:
        for term in _reduced_together(setup, experts, accumulation, groups.replicas):
            yield replace(term, what=f"experts' {term.what}")


def _reduced_together(setup: Setup, trained: int, accumulation: int, group: Group) -> Iterator[Term]:
    """Yield what ranks of one group pass on that all train the same parameters, up to stage 2."""
    stage, width = setup.stage, model_bytes(setup)
    reduced, buckets = trained * sent_bytes(setup), reduce_buckets(setup, trained)
    if stage == ZeroStage.DISABLED:
        yield Term(ALL_REDUCE, reduced, "gradients, once a step", group, buckets)
        if replaced_by_bf16_optimizer(setup):
            yield Term(ALL_GATHER, trained * width, "parameters after the step", group, after=True)
        return
    times = accumulation if stage == ZeroStage.GRADIENTS else 1
    how = (
        f"gradients, at each of {accumulation} micro steps"
        if stage == ZeroStage.GRADIENTS
        else "gradients, once a step"
    )
    collective = REDUCE if to_single_ranks(setup) else ALL_REDUCE
    yield Term(collective, reduced * times, how, group, buckets * times)
    gathers = gather_buckets(setup, trained)
    yield Term(ALL_GATHER, trained * width, "parameters after the step", group, gathers, after=True)


def _scattered(setup: Setup, trained: int, accumulation: int, group: Group) -> Term:
    payload = trained * sent_bytes(setup) * accumulation
    payload //= _QUANTIZED_GRADIENTS if setup.on(ZERO, "zero_quantized_gradients") else 1
    how = f"gradients, at each of {accumulation} micro steps"
    return Term(REDUCE_SCATTER, payload, how, group, reduce_buckets(setup, trained) * accumulation)


def _stage_3(setup: Setup, model: Model, accumulation: int, groups: Groups, again: Again) -> Iterator[Term]:
    # int8 is half of what is gathered in 16 bits; its scales come on top.
    width = model_bytes(setup) // (2 if setup.on(ZERO, "zero_quantized_weights") else 1)
    parts, ranks = model_parts(setup), groups.data.ranks
    if not model.modules:
        # Without modules: what is gathered at least, once for forward and backward.
        payload = model.parameters // parts * accumulation * width
        yield Term(ALL_GATHER, payload, f"parameters, at each of {accumulation} micro steps", groups.data)
        return
    kept, gathers = simulated(setup, model, accumulation, again)
    far, near = _far_and_near(gathers) if groups.near.ranks > 1 else (gathers, ())
    how = "parameters, once a step" if near else f"parameters, at each of {accumulation} micro steps"
    yield Term(ALL_GATHER, _elements(far, ranks) // parts * width, how, groups.data, len(far))
    if near:
        size = _elements(near, ranks) // parts * width
        yield Term(ALL_GATHER, size, "parameters, from the copy near by", groups.near, len(near))
    held = sum(_padded(tensor.elements, ranks) for tensor in kept)
    if held:
        yield Term(ALL_GATHER, held // parts * width, "small parameters, once a step", groups.data, after=True)


def _far_and_near(gathers: Sequence[Gather]) -> tuple[Sequence[Gather], Sequence[Gather]]:
    """Divide by whether a part of each parameter is near by: once it was gathered after a step; frozen ones always."""
    seen: set[Tensor] = set()
    far: list[Gather] = []
    near: list[Gather] = []
    for gather in gathers:
        missing = tuple(tensor for tensor in gather if tensor.trained and tensor not in seen)
        there = tuple(tensor for tensor in gather if tensor not in missing) if missing else gather
        far += [missing] if missing else []
        near += [there] if there else []
        seen.update(missing)
    return far, near


def _elements(gathers: Sequence[Gather], ranks: int) -> int:
    return sum(_padded(tensor.elements, ranks) for gather in gathers for tensor in gather)


def _padded(elements: int, ranks: int) -> int:
    return -(-elements // ranks) * ranks
