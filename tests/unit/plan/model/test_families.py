"""Families of models: their parameters, what autograd saves of them, and where they differ from Llama's."""

from typing import Any

import pytest

from deepspeed_operator.api.facts import ModelFacts
from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.memory.activations import activations
from deepspeed_operator.plan.memory.backward import backward
from deepspeed_operator.plan.memory.sizes import sizes_of
from deepspeed_operator.plan.model.architecture import Model, UnknownModelError
from deepspeed_operator.plan.model.declared import model_of
from deepspeed_operator.plan.model.families import FAMILIES
from deepspeed_operator.plan.model.hugging_face import from_hugging_face
from deepspeed_operator.plan.time.costs import flops

GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}
QWEN3: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
QWEN3_8B = {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32}
PHI3_MINI: dict[str, Any] = {
    "model_type": "phi3",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32064,
}
PYTHIA_1B: dict[str, Any] = {
    "model_type": "gpt_neox",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 8,
    "vocab_size": 50304,
}
OPT: dict[str, Any] = {
    "model_type": "opt",
    "hidden_size": 768,
    "ffn_dim": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 2048,
    "vocab_size": 50272,
}


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (GPT2, 124_439_808),
        ({**GPT2, "n_embd": 1600, "n_layer": 48, "n_head": 25}, 1_557_611_200),
        (QWEN3, 596_049_920),
        ({**QWEN3, **QWEN3_8B, "tie_word_embeddings": False}, 8_190_735_360),
        (PHI3_MINI, 3_821_079_552),
        (PYTHIA_1B, 1_011_781_632),
        (OPT, 125_239_296),
    ],
    ids=["gpt2", "gpt2-xl", "Qwen3-0.6B", "Qwen3-8B", "Phi-3-mini", "pythia-1b", "opt-125m"],
)
def test_parameters_are_those_of_the_published_model(config: dict[str, Any], parameters: int) -> None:
    assert from_hugging_face(config).parameters == parameters


def test_the_api_names_every_family() -> None:
    said = ModelFacts.model_fields["from_config"].description
    assert said is not None
    assert all(family in said for family in FAMILIES)


# Bytes of a token that torch.autograd.graph.saved_tensors_hooks counted in transformers 5.17 on an H200, 2 samples of
# 128 tokens: with SDPA, with eager attention, with SDPA in fp32, and with activation checkpointing.
USAGES: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("bf16", 2, {}),
    ("eager", 2, {"attention": "Eager"}),
    ("fp32", 4, {}),
    ("checkpointing", 2, {"activationCheckpointing": True}),
)
SMALL: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 512,
}
SAVED: dict[str, tuple[dict[str, Any], tuple[int, int, int, int]]] = {
    "llama": ({}, (27588, 33700, 47940, 5140)),
    "qwen3": ({"num_key_value_heads": 2, "head_dim": 128}, (39028, 47188, 72788, 5140)),
    "gpt2": ({"n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 1024}, (33116, 38204, 62812, 4380)),
    "phi3": ({}, (30660, 33700, 52036, 5140)),
    "gpt_neox": ({"intermediate_size": 1024}, (21624, 24664, 39064, 4120)),
    "opt": ({"ffn_dim": 1024, "max_position_embeddings": 1024}, (16480, 22592, 29792, 4128)),
}


@pytest.mark.parametrize(("name", "width", "facts"), USAGES, ids=[name for name, _, _ in USAGES])
@pytest.mark.parametrize("family", SAVED)
def test_activations_are_those_that_autograd_saved(family: str, name: str, width: int, facts: dict[str, Any]) -> None:
    sizes, counted = SAVED[family]
    found = activations(model({"model_type": family, **SMALL, **sizes}, 128, **facts), 2, width)
    expected = counted[[each for each, _, _ in USAGES].index(name)]
    assert (found.kept + found.logits) / 256 == pytest.approx(expected, rel=0.02)


# The most bytes at once in the backward pass beside parameters, as a TorchDispatchMode added up storages on a CPU:
# transformers 5.24, PyTorch 2.6, bf16, 3 layers, 64 words, one sample of 512 tokens; no dropout, as a CPU keeps masks
# in bf16. What the last layer's attention or MLP adds for a moment decides here, and not the loss.
TINY: dict[str, Any] = {**SMALL, "num_hidden_layers": 3, "vocab_size": 64}
WITHOUT = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0}
TINY_GPT2: dict[str, Any] = {"n_embd": 256, "n_layer": 3, "n_head": 4, "n_positions": 1024, "vocab_size": 64, **WITHOUT}
TINY_QWEN3 = {**TINY, "head_dim": 128, "tie_word_embeddings": True}
PEAKS: tuple[tuple[str, dict[str, Any], str, bool, int], ...] = (
    ("llama", TINY, "Eager", False, 40_553_480),
    ("llama", TINY, "Eager", True, 19_989_512),
    ("llama", TINY, "SDPA", False, 21_238_280),
    ("gpt2", TINY_GPT2, "Eager", False, 31_245_832),
    ("gpt2", TINY_GPT2, "Eager", True, 16_046_600),
    ("gpt2", TINY_GPT2, "SDPA", False, 24_978_952),
    ("qwen3", TINY_QWEN3, "Eager", False, 53_185_544),
    ("qwen3", TINY_QWEN3, "SDPA", False, 34_001_416),
    ("qwen3", TINY_QWEN3, "SDPA", True, 16_985_608),
)


@pytest.mark.parametrize(("family", "sizes", "attention", "again", "peak"), PEAKS)
def test_a_backward_pass_holds_what_was_counted(
    family: str, sizes: dict[str, Any], attention: str, again: bool, peak: int
) -> None:
    facts = {"attention": attention, "activationCheckpointing": again}
    sizes_here = sizes_of(setup(), model({"model_type": family, **sizes}, 512, **facts), 1, 1)
    found = sum(item.size for item in backward(sizes_here, (), last=False))
    assert found == pytest.approx(peak, rel=0.02)


def model(config: dict[str, Any], sequence: int = 1024, **facts: Any) -> Model:
    return model_of(ModelFacts.model_validate({"fromConfig": config, "sequenceLength": sequence, **facts}))


def kept(config: dict[str, Any], **facts: Any) -> float:
    """Bytes of a token."""
    return activations(model(config, **facts), 1, 2).kept / 1024


def test_masks_of_what_is_dropped_are_kept_only_where_something_is() -> None:
    assert kept(GPT2) - kept({**GPT2, **WITHOUT}) == (1 + 2 * 12) * 768


def test_eager_attention_keeps_a_mask_of_the_scores_and_what_it_leaves_of_them() -> None:
    dropped = {**GPT2, **WITHOUT, "attn_pdrop": 0.1}
    assert kept(dropped, attention="Eager") - kept({**GPT2, **WITHOUT}, attention="Eager") == 12 * 12 * 1024 * (1 + 2)
    assert kept(dropped) == kept({**GPT2, **WITHOUT})


def test_an_activation_function_of_one_operation_keeps_less() -> None:
    """gelu_new keeps four tensors beside what it returns, gelu its input; relu keeps what it returns."""
    inner = 12 * 4 * 768 * 2
    assert kept(GPT2) - kept({**GPT2, "activation_function": "gelu"}) == 3 * inner
    assert kept({**GPT2, "activation_function": "gelu"}) - kept({**GPT2, "activation_function": "relu"}) == inner


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"add_cross_attention": True}, "add_cross_attention True of model_type 'gpt2'"),
        ({"n_embd": None, "hidden_size": 768}, "n_embd must be"),
    ],
)
def test_what_the_family_is_not_known_with_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    with pytest.raises(UnknownModelError, match=named):
        from_hugging_face({**GPT2, **change})


def test_adapters_are_beside_the_modules_that_have_the_family_s_names() -> None:
    beside = model(GPT2, lora={"rank": 8, "targets": ["c_attn", "c_proj"]})
    assert beside.trained == 12 * 8 * ((768 + 3 * 768) + (768 + 768) + (4 * 768 + 768))
    assert model(GPT2, lora={"rank": 8, "targets": ["attn.c_proj"]}).trained == 12 * 8 * (768 + 768)
    with pytest.raises(UnknownModelError, match="q_proj, v_proj is none of c_attn, c_proj, c_fc"):
        model(GPT2, lora={"rank": 8})


def test_a_norm_of_heads_is_no_module_of_adapters() -> None:
    with pytest.raises(UnknownModelError, match="q_norm"):
        model(QWEN3, lora={"rank": 8, "targets": ["q_norm"]})


def test_the_longest_sample_is_that_of_the_learned_positions() -> None:
    assert model_of(ModelFacts(from_config=GPT2)).usage.sequence == 1024


def test_a_head_computes_whether_its_parameters_are_the_embedding_s_or_not() -> None:
    """Six for each parameter and token, the head among them, and attention by the width of all heads together."""
    tied = from_hugging_face(QWEN3)
    assert flops(tied, 1000) == 1000 * (6 * 596_049_920 + 12 * 28 * 2048 * 1000)


def setup(**zero: Any) -> Setup:
    return setup_of({"bf16": {"enabled": True}, "zero_optimization": {"stage": 0, **zero}}, 2, "0.19.8")


def test_a_tied_gradient_waits_for_its_second_part_and_is_reduced_once() -> None:
    sizes = sizes_of(setup(), model(QWEN3, sequence=1), 1, 1)
    matrix = 151936 * 1024
    assert sum(size for piece in sizes.activations.pieces for size in piece.trained) == 596_049_920
    assert sizes.activations.pieces[-1].waits == sizes.activations.pieces[0].joins == matrix
    gradients = next(item.size for item in backward(sizes, (), last=True) if item.what == "gradients")
    assert gradients == 2 * 596_049_920
