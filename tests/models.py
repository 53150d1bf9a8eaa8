"""Models that tests make of modules, and their traffic as collectives that are counted."""

from collections import Counter
from typing import Any

from deepspeed_operator.plan.model.architecture import Fact, Model, Module, Source, total
from deepspeed_operator.plan.traffic.communication import Traffic

# A config.json.
LLAMA_13B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "vocab_size": 32000,
}


def of_modules(modules: tuple[Module, ...]) -> Model:
    """Return a model whose modules are known one by one."""
    return Model(total(modules), modules, None, (Fact("parameters", total(modules), Source.DECLARED),))


def payload_by_size(found: Traffic) -> dict[tuple[str, int], int]:
    """Return the payload of each collective and number of ranks."""
    totals: Counter[tuple[str, int]] = Counter()
    for term in found.terms:
        totals[term.collective, term.group.ranks] += term.payload
    return dict(totals)
