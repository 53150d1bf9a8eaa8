"""Families of models in transformers: what their decoder layers are made of, in the order of a forward pass. Data only.

Read in transformers' modeling_*.py and configuration_*.py, 5.17. What autograd saves of each was counted, and of most a
GPU's memory was measured: docs/memory.md.
"""

from typing import Final

from deepspeed_operator.plan.model.parts import (
    Family,
    GroupedExperts,
    Linear,
    Mixed,
    Norm,
    Norming,
    Option,
    Part,
    Router,
    Sinks,
    Width,
)

_Bias = bool | Option


def _attention(*, biased: _Bias, outward: _Bias, heads: bool = False, sinks: bool = False) -> tuple[Part, ...]:
    """`heads`: queries and keys of each head are normed."""
    queries, keys = (Norm("q_norm", "queries", "head"),), (Norm("k_norm", "keys", "head"),)
    return (
        Norm("input_layernorm"),
        *((Sinks(),) if sinks else ()),
        Linear("q_proj", "hidden", ("queries",), biased),
        *(queries if heads else ()),
        Linear("k_proj", "hidden", ("keys",), biased),
        *(keys if heads else ()),
        Linear("v_proj", "hidden", ("keys",), biased),
        Linear("o_proj", "queries", ("hidden",), outward),
    )


def _gated(biased: _Bias = False, inner: Width = "intermediate", holder: str = "") -> tuple[Linear, ...]:
    return (
        Linear(f"{holder}gate_proj", "hidden", (inner,), biased),
        Linear(f"{holder}up_proj", "hidden", (inner,), biased),
        Linear(f"{holder}down_proj", inner, ("hidden",), biased),
    )


_AFTER_ATTENTION: Final = Norm("post_attention_layernorm")
_MLP: Final[tuple[Part, ...]] = (_AFTER_ATTENTION, *_gated())
_ASKED: Final = Option("attention_bias", False)
_FUSED: Final[tuple[Width, ...]] = ("queries", "keys", "keys")
_LIKE_LLAMA: Final = _attention(biased=False, outward=False)
_LIKE_QWEN3: Final = _attention(biased=_ASKED, outward=_ASKED, heads=True)

LLAMA: Final = Family(
    "llama",
    _attention(biased=_ASKED, outward=_ASKED),
    (_AFTER_ATTENTION, *_gated(Option("mlp_bias", False))),
)
_GPT2: Final = Family(
    "gpt2",
    (
        Norm("ln_1"),
        Linear("attn.c_attn", "hidden", _FUSED, True),
        Linear("attn.c_proj", "queries", ("hidden",), True),
    ),
    (
        Norm("ln_2"),
        Linear("mlp.c_fc", "hidden", ("intermediate",), True),
        Linear("mlp.c_proj", "intermediate", ("hidden",), True),
    ),
    norming=Norming.LAYER,
    keys=(
        ("hidden_size", "n_embd"),
        ("num_hidden_layers", "n_layer"),
        ("num_attention_heads", "n_head"),
        ("intermediate_size", "n_inner"),
        ("max_position_embeddings", "n_positions"),
    ),
    only=(Option("add_cross_attention", False), Option("reorder_and_upcast_attn", False)),
    tied=True,
    positions=0,
    upcasts=False,
    without_parameters=6,
    activation=Option("activation_function", "gelu_new"),
    attention_dropout=Option("attn_pdrop", 0.1),
    residual_dropout=Option("resid_pdrop", 0.1),
    embedding_dropout=Option("embd_pdrop", 0.1),
)
_PHI3: Final = Family(
    "phi3",
    (
        Norm("input_layernorm"),
        Linear("qkv_proj", "hidden", _FUSED),
        Linear("o_proj", "queries", ("hidden",)),
    ),
    (
        Norm("post_attention_layernorm"),
        Linear("gate_up_proj", "hidden", ("intermediate", "intermediate")),
        Linear("down_proj", "intermediate", ("hidden",)),
    ),
    rotates_parts=True,
    without_parameters=6,
    residual_dropout=Option("resid_pdrop", 0.0),
)
_BIASED: Final = Option("attention_bias", True)
_GPT_NEOX: Final = Family(
    "gpt_neox",
    (
        Norm("input_layernorm"),
        Linear("attention.query_key_value", "hidden", _FUSED, _BIASED),
        Linear("attention.dense", "queries", ("hidden",), _BIASED),
    ),
    (
        Norm("post_attention_layernorm", again=True),
        Linear("mlp.dense_h_to_4h", "hidden", ("intermediate",), True),
        Linear("mlp.dense_4h_to_h", "intermediate", ("hidden",), True),
    ),
    norming=Norming.LAYER,
    only=(Option("use_parallel_residual", True),),
    rotates_parts=True,
    without_parameters=6,
    activation=Option("hidden_act", "gelu"),
    residual_dropout=Option("hidden_dropout", 0.0),
    embedding_dropout=Option("hidden_dropout", 0.0),
)
_ENABLED: Final = Option("enable_bias", True)
_OPT: Final = Family(
    "opt",
    (
        Norm("self_attn_layer_norm"),
        Linear("q_proj", "hidden", ("queries",), _ENABLED),
        Linear("k_proj", "hidden", ("keys",), _ENABLED),
        Linear("v_proj", "hidden", ("keys",), _ENABLED),
        Linear("out_proj", "queries", ("hidden",), _ENABLED),
    ),
    (
        Norm("final_layer_norm"),
        Linear("fc1", "hidden", ("intermediate",), _ENABLED),
        Linear("fc2", "intermediate", ("hidden",), _ENABLED),
    ),
    norming=Norming.LAYER,
    keys=(("intermediate_size", "ffn_dim"),),
    # What OPT 350M has otherwise, beside embeddings of another width.
    only=(Option("do_layer_norm_before", True), Option("layer_norm_elementwise_affine", True)),
    tied=True,
    positions=2,
    without_parameters=3,
    activation=Option("activation_function", "relu"),
    residual_dropout=Option("dropout", 0.1),
)
# Of Gemma, each of the two has a norm after it, too, and a few numbers may be missing.
_GEMMA_MLP: Final[tuple[Part, ...]] = (
    Norm("pre_feedforward_layernorm"),
    *_gated(),
    Norm("post_feedforward_layernorm"),
)
_GELU: Final = Option("hidden_activation", "gelu_pytorch_tanh")
_GEMMA_DEFAULTS: Final = (("num_attention_heads", 8), ("num_key_value_heads", 4), ("max_position_embeddings", 8192))
_GEMMA2: Final = Family(
    "gemma2",
    (*_attention(biased=_ASKED, outward=_ASKED), _AFTER_ATTENTION),
    _GEMMA_MLP,
    norming=Norming.EXACT,
    defaults=(*_GEMMA_DEFAULTS, ("vocab_size", 256_000)),
    tied=True,
    head=256,
    windows=2,
    capped=Option("final_logit_softcapping", 30.0),
    scores_capped=Option("attn_logit_softcapping", 50.0),
    activation=_GELU,
)
_GEMMA3: Final = Family(
    "gemma3_text",
    (*_LIKE_QWEN3, _AFTER_ATTENTION),
    _GEMMA_MLP,
    norming=Norming.EXACT,
    defaults=(*_GEMMA_DEFAULTS[:2], ("max_position_embeddings", 131_072), ("vocab_size", 262_208)),
    tied=True,
    head=256,
    windows=6,
    capped=Option("final_logit_softcapping", None),
    activation=_GELU,
)
_ROUTED: Final[tuple[Part, ...]] = (Router("gate"), GroupedExperts())
_MIXTRAL: Final = Family(
    "mixtral",
    _LIKE_LLAMA,
    (),
    mixed=Mixed((_AFTER_ATTENTION, *_ROUTED), width="intermediate_size"),
)
_QWEN2_MOE: Final = Family(
    "qwen2_moe",
    _attention(biased=Option("qkv_bias", True), outward=False),
    _MLP,
    without_parameters=6,
    mixed=Mixed(
        (
            _AFTER_ATTENTION,
            *_gated(inner="shared", holder="shared_expert."),
            *_ROUTED,
            Linear("shared_expert_gate", "hidden", ("one",)),
        ),
        shared="shared_expert_intermediate_size",
        step="decoder_sparse_step",
        plain="mlp_only_layers",
    ),
)
_QWEN3_MIXED: Final = Mixed((_AFTER_ATTENTION, *_ROUTED), step="decoder_sparse_step", plain="mlp_only_layers")
# What is inside an expert goes through two clamps, a sigmoid and two products.
_GPT_OSS: Final = Family(
    "gpt_oss",
    _attention(biased=_BIASED, outward=_BIASED, sinks=True),
    (),
    norming=Norming.EXACT,
    head=64,
    upcasts=False,
    no_kernel=True,
    without_parameters=2,
    mixed=Mixed(
        (_AFTER_ATTENTION, Router("router", biased=True), GroupedExperts(biased=True, rows=7)),
        width="intermediate_size",
    ),
)
_LATENT_KEYS: Final[tuple[Part, ...]] = (
    Linear("kv_a_proj_with_mqa", "hidden", ("compressed",), _ASKED),
    Norm("kv_a_layernorm", "key_rank", "key_rank"),
    Linear("kv_b_proj", "key_rank", ("expanded",)),
    Linear("o_proj", "values", ("hidden",), _ASKED),
)
# Attention by latents where q_lora_rank is none.
WHOLE_QUERIES: Final[tuple[Part, ...]] = (
    Norm("input_layernorm"),
    Linear("q_proj", "hidden", ("queries",)),
    *_LATENT_KEYS,
)
_DEEPSEEK_V3: Final = Family(
    "deepseek_v3",
    (
        Norm("input_layernorm"),
        Linear("q_a_proj", "hidden", ("query_rank",), _ASKED),
        Norm("q_a_layernorm", "query_rank", "query_rank"),
        Linear("q_b_proj", "query_rank", ("queries",)),
        *_LATENT_KEYS,
    ),
    _MLP,
    latent=True,
    without_parameters=6,
    mixed=Mixed(
        (
            _AFTER_ATTENTION,
            Router("gate", exact=True),
            GroupedExperts(),
            *_gated(inner="shared", holder="shared_experts."),
        ),
        shared="moe_intermediate_size",
        times="n_shared_experts",
        dense="first_k_dense_replace",
    ),
)
FAMILIES: Final = {
    family.name: family
    for family in (
        LLAMA,
        Family("mistral", _LIKE_LLAMA, _MLP),
        Family("qwen2", _attention(biased=True, outward=False), _MLP),
        Family("qwen3", _LIKE_QWEN3, _MLP, head=128),
        _GPT2,
        _PHI3,
        _GPT_NEOX,
        _OPT,
        _GEMMA2,
        _GEMMA3,
        _MIXTRAL,
        _QWEN2_MOE,
        Family("qwen3_moe", _LIKE_QWEN3, _MLP, mixed=_QWEN3_MIXED),
        _GPT_OSS,
        _DEEPSEEK_V3,
        Family("qwen3_vl_text", _LIKE_QWEN3, _MLP, head=128),
        Family("qwen3_vl_moe_text", _LIKE_QWEN3, _MLP, mixed=_QWEN3_MIXED),
    )
}
