"""Families of models: their parameters, what autograd saves of them, and where they differ from Llama's."""

from pathlib import Path
from typing import Any

import pytest

from bench.gpu.expectations import SAVED as USAGES_COUNTED
from bench.gpu.expectations import expected_saved, parameters_of
from bench.gpu.tables import lines_of
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
from tests.unit.plan.model.published import (
    DEEPSEEK_V3,
    GEMMA2_2B,
    GEMMA3_4B,
    GPT2,
    GPT_OSS_20B,
    MIXTRAL_8X7B,
    OPT,
    PHI3_MINI,
    PYTHIA_1B,
    QWEN3,
    QWEN3_8B,
    QWEN3_30B,
    QWEN3_VL_4B,
    QWEN3_VL_30B,
    QWEN_MOE,
)


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
        (GEMMA2_2B, 2_614_341_888),
        (MIXTRAL_8X7B, 46_702_792_704),
        (QWEN_MOE, 14_315_784_192),
        (QWEN3_30B, 30_532_122_624),
        (GPT_OSS_20B, 20_914_757_184),
        (DEEPSEEK_V3, 671_026_404_352),
        (QWEN3_VL_4B, 4_437_815_808),
        (QWEN3_VL_30B, 31_070_754_032),
        (GEMMA3_4B, 4_300_079_472),
    ],
    ids=[
        *("gpt2", "gpt2-xl", "Qwen3-0.6B", "Qwen3-8B", "Phi-3-mini", "pythia-1b", "opt-125m"),
        *("gemma-2-2b", "Mixtral-8x7B", "Qwen1.5-MoE-A2.7B", "Qwen3-30B-A3B", "gpt-oss-20b", "DeepSeek-V3"),
        *("Qwen3-VL-4B", "Qwen3-VL-30B-A3B", "gemma-3-4b"),
    ],
)
def test_parameters_are_those_of_the_published_model(config: dict[str, Any], parameters: int) -> None:
    assert from_hugging_face(config).parameters == parameters


# Narrow models on an H200, by `python3 -m bench.gpu.inside.saved`.
COUNTED = {each["name"]: each for each in lines_of(Path(__file__).parents[4] / "bench/gpu/results/later", "saved")}


@pytest.mark.parametrize("name", COUNTED)
def test_a_narrow_models_parameters_and_activations_are_those_that_were_counted(name: str) -> None:
    record = COUNTED[name]
    assert parameters_of(record) == record["parameters"]
    assert {usage: expected_saved(record, usage) for usage in USAGES_COUNTED} == {
        usage: pytest.approx(record[usage], rel=0.02) for usage in USAGES_COUNTED
    }


@pytest.mark.parametrize(
    ("config", "billions"),
    [(MIXTRAL_8X7B, 12.9), (QWEN_MOE, 2.7), (QWEN3_30B, 3.35), (DEEPSEEK_V3, 37.6), (QWEN3_VL_30B, 3.35)],
    ids=["Mixtral-8x7B", "Qwen1.5-MoE-A2.7B", "Qwen3-30B-A3B", "DeepSeek-V3", "Qwen3-VL-30B-A3B"],
)
def test_a_token_of_text_goes_through_the_parameters_that_are_called_active(
    config: dict[str, Any], billions: float
) -> None:
    assert from_hugging_face(config).passed == pytest.approx(billions * 1e9, rel=0.01)


def test_only_some_layers_have_experts() -> None:
    config = {**QWEN3_30B, "num_hidden_layers": 6, "mlp_only_layers": [3], "decoder_sparse_step": 2}
    names = {tensor.name for module in from_hugging_face(config).modules for tensor in module}
    assert {number for number in range(6) if f"layers.{number}.experts.down_proj" in names} == {1, 5}
    assert "layers.3.gate_proj.weight" in names


def test_a_mixture_is_trained_in_part_as_its_modules_are_named() -> None:
    experts = 128 * 3 * 768 * 2048 * 48
    assert model(QWEN3_30B, trainable=["experts"]).trained == experts
    assert model(QWEN3_30B, trainable=["q_proj", "gate"]).trained == 48 * (2048 * 4096 + 128 * 2048)
    assert model(QWEN3_30B, lora={"rank": 8}).trained == 48 * 8 * (2048 + 4096 + 2048 + 512)


def test_how_experts_are_adapted_is_not_guessed() -> None:
    with pytest.raises(UnknownModelError, match="how down_proj of experts are adapted is not known"):
        model({**QWEN_MOE, "num_key_value_heads": 16}, lora={"rank": 8, "targets": ["q_proj", "down_proj"]})


def test_the_language_model_alone_is_trained_where_a_tower_is_frozen() -> None:
    text = from_hugging_face({**QWEN3_VL_4B["text_config"], "tie_word_embeddings": True}).parameters
    frozen = model(QWEN3_VL_4B, trainable=["model.language_model.*"])
    assert (frozen.trained, frozen.parameters) == (text, 4_437_815_808)
    assert not frozen.trains_tower
    assert not frozen.freezes_between
    assert model(QWEN3_VL_4B).trains_tower


def test_a_tower_that_is_not_known_has_what_the_declared_parameters_leave() -> None:
    config = {"model_type": "llava", "text_config": QWEN3, "vision_config": {"model_type": "clip_vision_model"}}
    with pytest.raises(UnknownModelError, match="what model_type 'llava' has beside its text_config"):
        from_hugging_face(config)
    assert from_hugging_face(config, 900_000_000).parameters == 900_000_000
    with pytest.raises(UnknownModelError, match="fewer than those of fromConfig's text_config"):
        from_hugging_face(config, 1000)


def test_a_window_shorter_than_a_sample_is_a_mask_that_sdpa_keeps() -> None:
    """Keys and values are repeated for each query then; flash attention needs neither."""
    sizes = {**SMALL, "num_key_value_heads": 2, "head_dim": 64}
    gemma = {"model_type": "gemma3_text", **sizes, "num_hidden_layers": 6, "sliding_window": 256}
    longer, shorter = (kept({**gemma, "sliding_window": window}, attention="SDPA") for window in (2048, 256))
    assert shorter - longer == 5 * (2 * 2 * (256 - 128) + 2 * 1024)
    assert kept(gemma, attention="Flash") == longer


def test_a_family_without_a_kernel_keeps_scores_unless_another_is_asked_for() -> None:
    assert kept(GPT_OSS_20B) == kept(GPT_OSS_20B, attention="Eager") > kept(GPT_OSS_20B, attention="Flash")


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
TINY_GROUPED = {**TINY, "num_key_value_heads": 2, "head_dim": 64}
TINY_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 320}
TINY_QWEN3 = {**TINY, "head_dim": 128, "tie_word_embeddings": True}
PEAKS: tuple[tuple[str, dict[str, Any], str, bool, int], ...] = (
    ("llama", TINY, "Eager", False, 40_553_480),
    ("llama", TINY, "Eager", True, 19_989_512),
    ("llama", TINY, "SDPA", False, 21_238_280),
    ("gpt2", TINY_GPT2, "Eager", False, 31_245_832),
    ("gpt2", TINY_GPT2, "Eager", True, 16_046_600),
    ("gpt2", TINY_GPT2, "SDPA", False, 24_978_952),
    ("qwen3", TINY_QWEN3, "Eager", False, 53_185_544),
    ("gemma2", TINY_GROUPED, "Eager", False, 54_333_960),
    ("gemma3_text", TINY_GROUPED, "Eager", False, 52_799_496),
    ("mixtral", {**TINY_GROUPED, **TINY_EXPERTS}, "Eager", False, 43_644_472),
    ("gpt_oss", {**TINY_GROUPED, **TINY_EXPERTS, "intermediate_size": 256}, "Eager", False, 34_979_384),
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
