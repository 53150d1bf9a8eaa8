"""Families of models in transformers: what their decoder layers are made of, in the order of a forward pass. Data only.

Read in transformers' modeling_*.py and configuration_*.py, 5.17. What autograd saves of each was counted, and of Llama,
Qwen 3 and GPT-2 a GPU's memory was measured: docs/memory.md.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

# Widths of a model's shape.
Width = Literal["hidden", "intermediate", "queries", "keys", "head"]


@dataclass(frozen=True, slots=True)
class Option:
    """A key of config.json, and what its absence means."""

    key: str
    default: bool | float | str


class Norming(Enum):
    """RMS: transformers' RMSNorm, made of single operations, in fp32 but for its weight. LAYER: PyTorch's LayerNorm."""

    RMS = "RMSNorm"
    LAYER = "LayerNorm"


@dataclass(frozen=True, slots=True)
class Norm:
    """`of`: what is normed, of each token; `weights`: its parameters. `again`: an earlier norm has the same input."""

    name: str
    of: Width = "hidden"
    weights: Width = "hidden"
    again: bool = False


@dataclass(frozen=True, slots=True)
class Linear:
    """What it takes says where it is: after a norm (hidden), after attention (queries) or inside the MLP."""

    name: str
    into: Width
    out: tuple[Width, ...]
    biased: bool | Option = False

    def adapted_by(self, targets: tuple[str, ...]) -> bool:
        """Whether peft puts adapters beside it: a target is the end of a module's name."""
        return any(f".{self.name}".endswith(f".{target}") for target in targets)


@dataclass(frozen=True, slots=True)
class Family:
    """`keys`: names of config.json that differ from Llama's. `only`: what the settings must be that change modules.

    `head`: width of a head where none is given, None: the hidden size divided. `positions`: rows of a learned embedding
    beyond the longest sample, None: there is no such embedding. `upcasts`: softmax of eager attention is fp32.
    `rotates_parts`: queries and keys are put together anew after rotation, beside the values' fused projection.
    """

    name: str
    layer: tuple[Norm | Linear, ...]
    norming: Norming = Norming.RMS
    keys: tuple[tuple[str, str], ...] = ()
    only: tuple[Option, ...] = ()
    tied: bool = False
    head: int | None = None
    positions: int | None = None
    upcasts: bool = True
    rotates_parts: bool = False
    activation: Option = Option("hidden_act", "silu")
    attention_dropout: Option = Option("attention_dropout", 0.0)
    residual_dropout: Option | None = None
    embedding_dropout: Option | None = None

    def key(self, name: str) -> str:
        """Return what config.json calls Llama's key."""
        return dict(self.keys).get(name, name)

    @property
    def linears(self) -> tuple[Linear, ...]:
        return tuple(part for part in self.layer if isinstance(part, Linear))

    @property
    def first_of_attention(self) -> Linear:
        return next(linear for linear in self.linears if linear.out[0] != "intermediate")

    @property
    def first_of_mlp(self) -> Linear:
        return next(linear for linear in self.linears if linear.out[0] == "intermediate")

    @property
    def last_of_attention(self) -> Linear:
        return next(linear for linear in self.linears if linear.into == "queries")

    @property
    def last_of_mlp(self) -> Linear:
        return next(linear for linear in self.linears if linear.into == "intermediate")

    @property
    def gated(self) -> bool:
        return sum(linear.out.count("intermediate") for linear in self.linears) > 1


_Bias = bool | Option


def _like_llama(*, biased: _Bias, outward: _Bias, mlp: _Bias = False, heads: bool = False) -> tuple[Norm | Linear, ...]:
    """`heads`: queries and keys of each head are normed."""
    queries, keys = (Norm("q_norm", "queries", "head"),), (Norm("k_norm", "keys", "head"),)
    return (
        Norm("input_layernorm"),
        Linear("q_proj", "hidden", ("queries",), biased),
        *(queries if heads else ()),
        Linear("k_proj", "hidden", ("keys",), biased),
        *(keys if heads else ()),
        Linear("v_proj", "hidden", ("keys",), biased),
        Linear("o_proj", "queries", ("hidden",), outward),
        Norm("post_attention_layernorm"),
        Linear("gate_proj", "hidden", ("intermediate",), mlp),
        Linear("up_proj", "hidden", ("intermediate",), mlp),
        Linear("down_proj", "intermediate", ("hidden",), mlp),
    )


_ASKED: Final = Option("attention_bias", False)
_FUSED: Final[tuple[Width, ...]] = ("queries", "keys", "keys")

LLAMA: Final = Family("llama", _like_llama(biased=_ASKED, outward=_ASKED, mlp=Option("mlp_bias", False)))
_GPT2: Final = Family(
    "gpt2",
    (
        Norm("ln_1"),
        Linear("attn.c_attn", "hidden", _FUSED, True),
        Linear("attn.c_proj", "queries", ("hidden",), True),
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
        Norm("post_attention_layernorm"),
        Linear("gate_up_proj", "hidden", ("intermediate", "intermediate")),
        Linear("down_proj", "intermediate", ("hidden",)),
    ),
    rotates_parts=True,
    residual_dropout=Option("resid_pdrop", 0.0),
)
_BIASED: Final = Option("attention_bias", True)
_GPT_NEOX: Final = Family(
    "gpt_neox",
    (
        Norm("input_layernorm"),
        Linear("attention.query_key_value", "hidden", _FUSED, _BIASED),
        Linear("attention.dense", "queries", ("hidden",), _BIASED),
        Norm("post_attention_layernorm", again=True),
        Linear("mlp.dense_h_to_4h", "hidden", ("intermediate",), True),
        Linear("mlp.dense_4h_to_h", "intermediate", ("hidden",), True),
    ),
    norming=Norming.LAYER,
    only=(Option("use_parallel_residual", True),),
    rotates_parts=True,
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
    activation=Option("activation_function", "relu"),
    residual_dropout=Option("dropout", 0.1),
)
FAMILIES: Final = {
    family.name: family
    for family in (
        LLAMA,
        Family("mistral", _like_llama(biased=False, outward=False)),
        Family("qwen2", _like_llama(biased=True, outward=False)),
        Family("qwen3", _like_llama(biased=_ASKED, outward=_ASKED, heads=True), head=128),
        _GPT2,
        _PHI3,
        _GPT_NEOX,
        _OPT,
    )
}
