"""What of a model is trained, by the names of its modules."""

from typing import Any

import pytest

from deepspeed_operator.api.facts import ModelFacts
from deepspeed_operator.job.provenance import Source
from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.memory.activations import activations
from deepspeed_operator.plan.memory.fit import Fit, MemoryFit, fit_of
from deepspeed_operator.plan.model.architecture import Model, UnknownModelError
from deepspeed_operator.plan.model.declared import model_of
from deepspeed_operator.plan.time.costs import flops
from tests.unit.plan.machine import LLAMA, configuration

GPT2: dict[str, Any] = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}
# 4 × 2048² of attention, 3 × 2048 × 5504 of the MLP, two norms.
LAYER = 4 * 2048**2 + 3 * 2048 * 5504 + 2 * 2048
HEAD, NORM = 2048 * 32000, 2048


def model(*patterns: str, config: dict[str, Any] = LLAMA, **facts: Any) -> Model:
    trainable = {"trainable": list(patterns)} if patterns else {}
    return model_of(ModelFacts.model_validate({"fromConfig": config, "sequenceLength": 1024, **trainable, **facts}))


def fit(gib: float, *patterns: str, **facts: Any) -> MemoryFit:
    known: dict[str, Any] = {"attention": "SDPA", "activationCheckpointing": False, **facts}
    return fit_of(setup_of(configuration(2, 1, 4), 2, "0.19.8"), model(*patterns, **known), 4, 1, round(gib * 2**30))


@pytest.mark.parametrize(
    ("patterns", "trained"),
    [
        (("layers.23",), LAYER),
        (("model.layers.2[0-3].*", "lm_head", "norm"), 4 * LAYER + HEAD + NORM),
        (("layers.23.self_attn.q_proj",), 2048**2),
        (("q_proj", "v_proj"), 24 * 2 * 2048**2),
        (("*",), 24 * LAYER + 2 * HEAD + NORM),
    ],
)
def test_modules_are_named_as_in_transformers_or_by_a_part_of_it(patterns: tuple[str, ...], trained: int) -> None:
    found = model(*patterns)
    assert found.trained == trained
    fact = next(each for each in found.facts if each.name == "trainableParameters")
    assert (fact.value, fact.source) == (trained, Source.DECLARED)


def test_a_holder_tells_modules_of_one_name_apart() -> None:
    config = {**GPT2, "vocab_size": 100}
    assert model("attn.c_proj", config=config).trained == 2 * (64 * 64 + 64)
    assert model("mlp.c_proj", config=config).trained == 2 * (64 * 256 + 64)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"trainable": ["layers.24"]}, "layers.24 is none of layers.N, embed_tokens, input_layernorm, q_proj"),
        ({"trainable": ["norm"], "lora": {"rank": 8}}, "trainable and lora are both given"),
        ({"trainable": ["norm"], "trainableParameters": 7}, "contradict trainable, which has 2048"),
        ({"fromConfig": None, "parameters": 10**9, "trainable": ["norm"]}, "needs fromConfig"),
    ],
)
def test_what_names_nothing_or_contradicts_is_refused(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownModelError, match=message):
        model(**facts)


def test_autograd_keeps_nothing_before_the_first_layer_that_is_trained() -> None:
    """A quarter of the layers keeps a quarter of what all keep, with the last norm."""
    last, all_ = (activations(each, 4, 2).kept for each in (model("layers.1[89]", "layers.2[0-3]"), model()))
    assert last / all_ == pytest.approx(6 / 24, rel=0.03)
    again = activations(model("layers.23", activationCheckpointing=True), 4, 2)
    assert again.kept == activations(model(activationCheckpointing=True), 4, 2).kept - 23 * 4 * 1024 * 2 * 2048


def test_what_is_frozen_for_sure_decides_whether_it_fits() -> None:
    last = ("layers.23", "norm", "lm_head")
    assert fit(80, *last).memory.needed < fit(80).memory.needed / 2
    assert fit(14, *last).fit is Fit.YES
    assert fit(6, *last).fit is Fit.NO
    assert fit(14).unless_frozen


def test_layers_that_are_frozen_behind_a_trained_one_may_keep_less() -> None:
    found = fit(12, "layers.0", "lm_head")
    assert found.fit is Fit.UNKNOWN
    assert "that frozen layers keep activations, which is assumed" in found.open


def test_the_backward_pass_ends_where_nothing_more_is_trained() -> None:
    tokens, whole = 1024, model().parameters
    attention = 12 * 24 * 2048 * tokens
    behind = LAYER / whole
    expected = tokens * (2 * whole * (1 + behind) + 2 * LAYER + attention * (1 + 2 * behind) / 3)
    found = flops(model("layers.23"), tokens)
    # The last norm and the head lie behind the layer.
    assert found == pytest.approx(expected + tokens * (2 * (HEAD + NORM) + attention * 2 * (HEAD + NORM) / whole / 3))
    assert found < 0.5 * flops(model(), tokens)
