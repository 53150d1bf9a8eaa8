"""What the planner knows of a model, and from where."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, prod
from typing import Any, Final

from deepspeed_operator.plan.families import FAMILIES, LLAMA, Family, Linear, Norm, Norming, Option, Width


class Source(StrEnum):
    """Where a fact comes from; a verdict that an assumed one could flip is none."""

    DECLARED = "Declared"
    HUGGING_FACE_CONFIG = "HuggingFaceConfig"
    DS_CONFIG = "DsConfig"
    NODE_LABELS = "NodeLabels"
    MEASURED = "Measured"
    ASSUMED = "Assumed"


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    value: float | str
    source: Source


@dataclass(frozen=True, slots=True)
class Tensor:
    """A parameter; a tied one has the same name wherever it is used."""

    name: str
    elements: int
    trained: bool = True


Module = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Dropout:
    """Where numbers are dropped in training: a mask of a byte for each is kept."""

    attention: bool = False
    residual: bool = False
    embedding: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What activations depend on; `queries` and `keys` are widths of these projections, over all heads."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    vocabulary: int
    queries: int
    keys: int
    family: Family = LLAMA
    activation: str = "silu"
    dropout: Dropout = Dropout()

    def width(self, name: Width) -> int:
        return self.queries // self.heads if name == "head" else getattr(self, name)


@dataclass(frozen=True, slots=True)
class Guess:
    """A fact of a shape that nobody told: what else of it may be, one end and the other."""

    name: str
    few: Mapping[str, int]
    many: Mapping[str, int]


class Attention(StrEnum):
    """How attention is computed. SDPA stands for kernels that keep no scores: flash and memory-efficient ones."""

    SDPA = "SDPA"
    EAGER = "Eager"


@dataclass(frozen=True, slots=True)
class Usage:
    """How a script trains the model: `sequence` tokens a sample, and never more than `longest`.

    `frozen_width`: bytes of a frozen parameter, None: as those that are trained. `adapted`: modules with adapters.
    """

    sequence: int | None = None
    longest: int | None = None
    attention: Attention = Attention.SDPA
    checkpointing: bool = False
    frozen_width: float | None = None
    adapted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Experts:
    """`count` experts with `parameters` each in each of `layers` layers; a token goes to `chosen` of them.

    `capacity`: tokens for which they have room, in units of those that they would share evenly.
    """

    count: int
    layers: int
    parameters: int
    chosen: int = 1
    capacity: float = 1.0

    @property
    def total(self) -> int:
        return self.count * self.layers * self.parameters

    @property
    def passed(self) -> float:
        """Parameters that a token goes through, room that is left empty counted: it is computed, too."""
        return self.layers * self.parameters * self.chosen * self.capacity

    def room(self, tokens: int) -> int:
        """Tokens that all experts of a layer take of `tokens`: _capacity of moe/sharded_moe.py."""
        return self.count * max(ceil(tokens / self.count * self.capacity * self.chosen), _LEAST_ROOM)


# min_capacity of an expert, where the script says no other.
_LEAST_ROOM: Final = 4


@dataclass(frozen=True, slots=True)
class Model:
    """`modules` are those that own parameters, as a forward pass calls them; empty where only a number is known."""

    parameters: int
    modules: tuple[Module, ...]
    shape: Shape | None
    facts: tuple[Fact, ...]
    trainable: int | None = None
    usage: Usage = Usage()
    experts: Experts | None = None
    guesses: tuple[Guess, ...] = ()

    @property
    def passed(self) -> float:
        """Parameters that a token goes through."""
        return self.parameters - self.experts.total + self.experts.passed if self.experts else self.parameters

    @property
    def trained(self) -> int:
        """Parameters that have gradients: all, where nothing else is said."""
        if self.trainable is not None:
            return self.trainable
        frozen = {tensor.name: tensor.elements for module in self.modules for tensor in module if not tensor.trained}
        return self.parameters - sum(frozen.values())

    def assumes(self, name: str) -> bool:
        """Whether this fact is nobody's word."""
        return any(fact.name == name and fact.source is Source.ASSUMED for fact in self.facts)


class UnknownModelError(ValueError):
    """A model whose parameters cannot be told from its configuration."""


def declared(parameters: int) -> Model:
    """Return a model of which only the size is known."""
    return Model(parameters, (), None, (Fact("parameters", parameters, Source.DECLARED),))


def of_modules(modules: tuple[Module, ...]) -> Model:
    """Return a model whose modules are known one by one."""
    return Model(_total(modules), modules, None, (Fact("parameters", _total(modules), Source.DECLARED),))


def from_hugging_face(config: Mapping[str, Any]) -> Model:
    """Read a config.json of transformers."""
    name = config.get("model_type")
    family = FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        known = ", ".join(FAMILIES)
        raise UnknownModelError(f"model_type {name!r} is not one of {known}: declare its parameters instead")
    for option in family.only:
        if _given(config, option) != option.default:
            words = f"{option.key} {config[option.key]!r} of model_type {name!r} is not known"
            raise UnknownModelError(f"{words}: declare its parameters instead")
    shape = _shape(config, family)
    modules: list[Module] = [_matrix("embed_tokens", shape.vocabulary, shape.hidden)]
    longest = config.get(family.key("max_position_embeddings"))
    if family.positions is not None:
        rows = _number(config, family, "max_position_embeddings") + family.positions
        modules.append(_matrix("embed_positions", rows, shape.hidden))
    for layer in range(shape.layers):
        modules += [_module(f"layers.{layer}.{part.name}", part, shape, config) for part in family.layer]
    modules.append(_module("norm", Norm("norm"), shape, config))
    tied = bool(_given(config, Option("tie_word_embeddings", family.tied)))
    modules.append(_matrix("embed_tokens" if tied else "lm_head", shape.vocabulary, shape.hidden))
    facts = (
        Fact("parameters", _total(modules), Source.HUGGING_FACE_CONFIG),
        Fact("layers", shape.layers, Source.HUGGING_FACE_CONFIG),
        Fact("hidden size", shape.hidden, Source.HUGGING_FACE_CONFIG),
        Fact("vocabulary", shape.vocabulary, Source.HUGGING_FACE_CONFIG),
    )
    usage = Usage(longest=longest if type(longest) is int and longest > 0 else None)
    return Model(_total(modules), tuple(modules), shape, facts, usage=usage)


def _module(name: str, part: Norm | Linear, shape: Shape, config: Mapping[str, Any]) -> Module:
    if isinstance(part, Norm):
        return _matrix(name, shape.width(part.weights), biased=shape.family.norming is Norming.LAYER)
    biased = _given(config, part.biased) if isinstance(part.biased, Option) else part.biased
    return _matrix(name, sum(map(shape.width, part.out)), shape.width(part.into), biased=bool(biased))


# More than any model has: what is simulated layer by layer must end soon.
_MOST_LAYERS: Final = 1000
# Of the hidden size, where the width inside the MLP may be left out.
_USUAL_MLP: Final = 4


def _shape(config: Mapping[str, Any], family: Family) -> Shape:
    hidden = _number(config, family, "hidden_size")
    heads = _number(config, family, "num_attention_heads")
    head = _number(config, family, "head_dim", family.head or hidden // heads)
    layers = _number(config, family, "num_hidden_layers")
    if layers > _MOST_LAYERS:
        raise UnknownModelError(f"num_hidden_layers must be {_MOST_LAYERS} or less, not {layers}")
    inner = None if family.gated else _USUAL_MLP * hidden
    dropouts = (family.attention_dropout, family.residual_dropout, family.embedding_dropout)
    return Shape(
        layers=layers,
        hidden=hidden,
        intermediate=_number(config, family, "intermediate_size", inner),
        heads=heads,
        vocabulary=_number(config, family, "vocab_size"),
        queries=heads * head,
        keys=_number(config, family, "num_key_value_heads", heads) * head,
        family=family,
        activation=str(_given(config, family.activation)),
        dropout=Dropout(*(option is not None and bool(_given(config, option)) for option in dropouts)),
    )


def _given(config: Mapping[str, Any], option: Option) -> Any:
    value = config.get(option.key)
    return option.default if value is None else value


def _number(config: Mapping[str, Any], family: Family, name: str, default: int | None = None) -> int:
    key = family.key(name)
    value = config.get(key)
    if value is None and default is not None:
        return default
    if type(value) is not int or value < 1:
        raise UnknownModelError(f"{key} must be a whole number above 0, not {value!r}")
    return value


def _matrix(name: str, *sizes: int, biased: bool = False) -> Module:
    weight = Tensor(f"{name}.weight", prod(sizes))
    return (weight, Tensor(f"{name}.bias", sizes[0])) if biased else (weight,)


def _total(modules: tuple[Module, ...] | list[Module]) -> int:
    return sum({tensor.name: tensor.elements for module in modules for tensor in module}.values())
