"""What ranks that share a model or a sequence send of activations: by the papers' formulas, not counted, but experts.

s tokens × b samples × h wide, in bytes of the model's type, for each layer and micro batch:
tensor (arXiv 1909.08053): 4 all-reduces of sbh, 2 more where a forward pass is done again; sequence (Ulysses, arXiv
2309.14509): 4 all-to-alls of a rank's part in each pass; pipeline: sbh to the next stage, and its gradient back.

Counted, in tests/oracle/test_traffic.py: what goes to experts and comes back, in both passes (MOELayer.forward of
deepspeed/moe/sharded_moe.py), of the tokens for which there is room, whether they are there or not.
"""

from collections.abc import Iterator
from typing import Final

from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.plan.engine.groups import Groups
from deepspeed_operator.plan.model.architecture import Model
from deepspeed_operator.plan.traffic.collectives import ALL_REDUCE, ALL_TO_ALL, SEND, Term

_ALL_TO_ALLS: Final = 8
_TO_EXPERTS: Final = 4


def activation_terms(
    setup: Setup, model: Model, groups: Groups, *, width: int, micro: int, accumulation: int
) -> Iterator[Term]:
    """Yield what is known where the model's layers and the length of its samples are."""
    shape, tokens, division = model.shape, model.usage.sequence, setup.division
    if shape is None or tokens is None:
        return
    whole = tokens * micro * shape.hidden * width // division.sequence
    layers = -(-shape.layers // division.pipeline) * accumulation
    reduces = (6 if model.usage.checkpointing else 4) * layers
    what = "activations, at each layer of each micro step"
    yield Term(ALL_REDUCE, reduces * whole, what, groups.tensor, reduces)
    part = whole // division.tensor
    yield Term(ALL_TO_ALL, _ALL_TO_ALLS * layers * part, what, groups.sequence, _ALL_TO_ALLS * layers)
    if model.experts is not None:
        calls = _TO_EXPERTS + (2 if model.usage.checkpointing else 0)
        calls *= -(-model.experts.layers // division.pipeline) * accumulation
        sent = model.experts.room(tokens * micro // division.sequence) * shape.hidden * width // division.tensor
        yield Term(ALL_TO_ALL, calls * sent, "tokens to experts and back, at each micro step", groups.experts, calls)
    yield Term(SEND, 2 * accumulation * whole, "activations, between stages", groups.pipeline, 2 * accumulation)
