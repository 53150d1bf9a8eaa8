"""What nobody told of a model's shape is an assumed fact: it leaves MemoryFit open, and is named, where it decides."""

from typing import Any

import pytest

from deepspeed_operator.api.facts import ModelFacts
from deepspeed_operator.job.provenance import Source
from deepspeed_operator.job.units import GIB
from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.memory.fit import Fit, MemoryFit, fit_of
from deepspeed_operator.plan.model.declared import model_of

LLAMA_7B: dict[str, Any] = {
    "parameters": 6_738_415_616,
    "trainableParameters": 6_738_415_616,
    "layers": 32,
    "hiddenSize": 4096,
    "vocabulary": 32_000,
    "sequenceLength": 4096,
    "attention": "Eager",
    "activationCheckpointing": False,
}
REST: dict[str, Any] = {"keyValueHeads": 16, "intermediateSize": 11_008}
CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"torch_adam": True}},
    "zero_optimization": {"stage": 2},
}


def fit(facts: dict[str, Any], gib: float, **config: Any) -> MemoryFit:
    model = model_of(ModelFacts.model_validate({**LLAMA_7B, **facts}))
    return fit_of(setup_of({**CONFIG, **config}, 8, "0.19.8"), model, 2, 1, round(gib * GIB))


def test_eager_attention_of_a_model_whose_heads_are_not_declared_is_no_verdict() -> None:
    open_fit = fit({}, 200)
    assert (open_fit.fit, open_fit.open) == (Fit.UNKNOWN, ("heads, which is assumed",))
    assert fit({"heads": 16}, 200).fit is Fit.YES
    assert fit({"heads": 32}, 200).fit is Fit.NO


@pytest.mark.parametrize(
    ("name", "given", "told", "gib"),
    [
        ("heads", {**REST}, 16, 200),
        ("keyValueHeads", {"attention": "SDPA", "heads": 32, "intermediateSize": 11_008}, 4, 77.5),
        ("intermediateSize", {"attention": "SDPA", "heads": 32, "keyValueHeads": 4}, 11_008, 77.5),
    ],
)
def test_a_guess_that_decides_is_named_and_to_declare_it_settles_it(
    name: str, given: dict[str, Any], told: int, gib: float
) -> None:
    left = fit(given, gib)
    assert left.fit is Fit.UNKNOWN
    assert f"{name}, which is assumed" in left.open
    assert fit({**given, name: told}, gib).fit is Fit.YES


@pytest.mark.parametrize("gib", [20, 400])
def test_a_guess_that_decides_nothing_is_no_reason_for_doubt(gib: float) -> None:
    assert fit({"attention": "SDPA"}, gib).fit is (Fit.YES if gib == 400 else Fit.NO)


def test_in_fp32_fewer_heads_of_keys_need_more() -> None:
    """No kernel without scores takes grouped keys there."""
    fp32 = {"bf16": {"enabled": False}}
    known = {"attention": "SDPA", "heads": 32, "intermediateSize": 11_008}
    grouped, alike = (fit({**known, "keyValueHeads": heads}, 300, **fp32).memory.needed for heads in (8, 32))
    assert grouped > 1.5 * alike
    between = fit(known, (grouped + alike) / 2 / GIB, **fp32)
    assert (between.fit, between.open) == (Fit.UNKNOWN, ("keyValueHeads, which is assumed",))


def test_what_is_guessed_is_shown_as_assumed_and_what_is_told_as_declared() -> None:
    def sources(facts: dict[str, Any]) -> dict[str, Source]:
        model = model_of(ModelFacts.model_validate({**LLAMA_7B, **facts}))
        names = ("heads", "keyValueHeads", "intermediateSize")
        return {fact.name: fact.source for fact in model.facts if fact.name in names}

    assert set(sources({}).values()) == {Source.ASSUMED}
    assert set(sources({"heads": 32, **REST}).values()) == {Source.DECLARED}


def test_tied_embeddings_leave_more_to_the_mlp() -> None:
    (guess,) = model_of(ModelFacts.model_validate({**LLAMA_7B, "heads": 32, "keyValueHeads": 32})).guesses
    assert guess.name == "intermediateSize"
    assert guess.few["intermediate"] == pytest.approx(11_008, rel=0.01)
    more = 32_000 * 4096 / 32 / (3 * 4096)
    assert guess.many["intermediate"] - guess.few["intermediate"] == pytest.approx(more, abs=2)
