"""What decoder layers are made of, as types: plan/model/families.py has the data."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal

# Widths of a model's shape.
Width = Literal[
    "hidden",
    "intermediate",
    "queries",
    "keys",
    "head",
    "heads",
    "one",
    # Of attention by latents.
    "query_rank",
    "key_rank",
    "compressed",
    "expanded",
    "values",
    # Of mixtures of experts.
    "experts",
    "expert",
    "gate_up",
    "shared",
]


@dataclass(frozen=True, slots=True)
class Option:
    """A key of config.json, and what its absence means."""

    key: str
    default: bool | float | str | None


class Norming(Enum):
    """How norms are computed.

    RMS: transformers' RMSNorm, made of single operations, in fp32 but for its weight. EXACT: with it, in fp32, too.
    LAYER: PyTorch's LayerNorm.
    """

    RMS = "RMSNorm"
    EXACT = "RMSNorm, its weight in fp32"
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
class Sinks:
    """A number of each head that its softmax has beside the scores: a parameter of the attention itself."""

    name: str = "self_attn"


@dataclass(frozen=True, slots=True)
class Router:
    """Chooses a token's experts by a score for each. `exact`: computed in fp32, of fp32 copies."""

    name: str
    biased: bool = False
    exact: bool = False


@dataclass(frozen=True, slots=True)
class GroupedExperts:
    """All experts of a layer, their matrices in one tensor each, as transformers holds them since 5.0.

    `rows`: so often what is inside one is kept, of each token that it takes.
    """

    name: str = "experts"
    biased: bool = False
    rows: int = 4


Part = Norm | Linear | Sinks | Router | GroupedExperts


@dataclass(frozen=True, slots=True)
class Mixed:
    """Layers in which a router chooses experts: what they are made of in place of the MLP, and keys of config.json.

    `chosen` and `width`: experts that a token goes to, and what is inside of each. `shared`: the width of the MLP that
    every token goes through besides; `times`: the key that says how often `shared` it is.
    `dense`: how many of the first layers have the plain MLP; `step` and `plain`: every how many-th layer has experts,
    and which have none.
    """

    parts: tuple[Part, ...]
    chosen: str = "num_experts_per_tok"
    width: str = "moe_intermediate_size"
    shared: str | None = None
    times: str | None = None
    dense: str | None = None
    step: str | None = None
    plain: str | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """`keys`: names of config.json that differ from Llama's. `only`: what the settings must be that change modules.

    `defaults`: numbers that config.json may leave out. `head`: width of a head where none is given, None: the hidden
    size divided. `positions`: rows of a learned embedding beyond the longest sample, None: there is no such embedding.
    `upcasts`: softmax of eager attention is fp32. `rotates_parts`: queries and keys are put together anew after
    rotation, beside the values' fused projection. `latent`: queries, keys and values are made of narrower latents.
    `mixed`: what some layers, or all, have in place of the MLP. `windows`: every so many-th layer attends to all of a
    sample, the others to a window of it; None: all layers do. `capped`, `scores_capped`: logits, or the scores of eager
    attention, go through a tanh. `no_kernel`: PyTorch has no kernel for its attention, so that scores are kept unless
    another one is asked for. `without_parameters`: so many modules of a layer have none of their own: the layer itself,
    attention, MLP, activation; what more there is are dropouts, even those that drop nothing, and shared experts.
    """

    name: str
    attention: tuple[Part, ...]
    mlp: tuple[Part, ...]
    norming: Norming = Norming.RMS
    keys: tuple[tuple[str, str], ...] = ()
    only: tuple[Option, ...] = ()
    defaults: tuple[tuple[str, int], ...] = ()
    tied: bool = False
    head: int | None = None
    positions: int | None = None
    upcasts: bool = True
    rotates_parts: bool = False
    latent: bool = False
    mixed: Mixed | None = None
    windows: int | None = None
    capped: Option | None = None
    scores_capped: Option | None = None
    no_kernel: bool = False
    without_parameters: int = 4
    activation: Option = Option("hidden_act", "silu")
    attention_dropout: Option = Option("attention_dropout", 0.0)
    residual_dropout: Option | None = None
    embedding_dropout: Option | None = None

    def key(self, name: str) -> str:
        """Return what config.json calls Llama's key."""
        return dict(self.keys).get(name, name)

    @property
    def layer(self) -> tuple[Part, ...]:
        """A layer without experts."""
        return (*self.attention, *self.mlp)

    @property
    def mixed_layer(self) -> tuple[Part, ...]:
        """A layer with experts, empty where the family has none."""
        return (*self.attention, *self.mixed.parts) if self.mixed is not None else ()

    @property
    def gated(self) -> bool:
        return sum(linear.out.count("intermediate") for linear in linears_of(self.mlp)) > 1


def linears_of(parts: tuple[Part, ...]) -> tuple[Linear, ...]:
    """Return the linear modules among some parts."""
    return tuple(part for part in parts if isinstance(part, Linear))
