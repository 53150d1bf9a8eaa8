"""What the planner knows of a model, and from where."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, prod
from typing import Any, Final


class Source(StrEnum):
    """Where a fact comes from; a verdict that an assumed one could flip is none."""

    DECLARED = "Declared"
    HUGGING_FACE_CONFIG = "HuggingFaceConfig"
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
class Shape:
    """What activations depend on; `queries` and `keys` are widths of these projections, over all heads."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    vocabulary: int
    queries: int
    keys: int


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


# Families whose decoder layers are Llama's → whether their query, key and value projections have biases.
_LLAMA_LIKE: Final = {"llama": False, "mistral": False, "qwen2": True}


def from_hugging_face(config: Mapping[str, Any]) -> Model:
    """Read a config.json of transformers."""
    family = config.get("model_type")
    if not isinstance(family, str) or family not in _LLAMA_LIKE:
        known = ", ".join(_LLAMA_LIKE)
        raise UnknownModelError(f"model_type {family!r} is not one of {known}: declare its parameters instead")
    shape = _shape(config)
    biased = bool(config.get("attention_bias", _LLAMA_LIKE[family]))
    modules: list[Module] = [_matrix("embed_tokens", shape.vocabulary, shape.hidden)]
    for layer in range(shape.layers):
        modules += _layer(f"layers.{layer}", shape, biased=biased, family=family)
    modules.append(_vector("norm", shape.hidden))
    tied = bool(config.get("tie_word_embeddings", False))
    modules.append(_matrix("embed_tokens" if tied else "lm_head", shape.vocabulary, shape.hidden))
    facts = (
        Fact("parameters", _total(modules), Source.HUGGING_FACE_CONFIG),
        Fact("layers", shape.layers, Source.HUGGING_FACE_CONFIG),
        Fact("hidden size", shape.hidden, Source.HUGGING_FACE_CONFIG),
        Fact("vocabulary", shape.vocabulary, Source.HUGGING_FACE_CONFIG),
    )
    return Model(_total(modules), tuple(modules), shape, facts)


def _layer(name: str, shape: Shape, *, biased: bool, family: str) -> list[Module]:
    hidden, wide, keys, queries = shape.hidden, shape.intermediate, shape.keys, shape.queries
    # Qwen 2's output projection has no bias, Llama's attention_bias gives it one.
    outward = biased and family != "qwen2"
    return [
        _vector(f"{name}.input_layernorm", hidden),
        _matrix(f"{name}.q_proj", queries, hidden, biased=biased),
        _matrix(f"{name}.k_proj", keys, hidden, biased=biased),
        _matrix(f"{name}.v_proj", keys, hidden, biased=biased),
        _matrix(f"{name}.o_proj", hidden, queries, biased=outward),
        _vector(f"{name}.post_attention_layernorm", hidden),
        _matrix(f"{name}.gate_proj", wide, hidden),
        _matrix(f"{name}.up_proj", wide, hidden),
        _matrix(f"{name}.down_proj", hidden, wide),
    ]


# More than any model has: what is simulated layer by layer must end soon.
_MOST_LAYERS: Final = 1000


def _shape(config: Mapping[str, Any]) -> Shape:
    hidden, heads = _number(config, "hidden_size"), _number(config, "num_attention_heads")
    head = _number(config, "head_dim", hidden // heads)
    layers = _number(config, "num_hidden_layers")
    if layers > _MOST_LAYERS:
        raise UnknownModelError(f"num_hidden_layers must be {_MOST_LAYERS} or less, not {layers}")
    return Shape(
        layers=layers,
        hidden=hidden,
        intermediate=_number(config, "intermediate_size"),
        heads=heads,
        vocabulary=_number(config, "vocab_size"),
        queries=heads * head,
        keys=_number(config, "num_key_value_heads", heads) * head,
    )


def _number(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None and default is not None:
        return default
    if type(value) is not int or value < 1:
        raise UnknownModelError(f"{key} must be a whole number above 0, not {value!r}")
    return value


def _vector(name: str, elements: int) -> Module:
    return (Tensor(f"{name}.weight", elements),)


def _matrix(name: str, *sizes: int, biased: bool = False) -> Module:
    weight = Tensor(f"{name}.weight", prod(sizes))
    return (weight, Tensor(f"{name}.bias", sizes[0])) if biased else (weight,)


def _total(modules: tuple[Module, ...] | list[Module]) -> int:
    return sum({tensor.name: tensor.elements for module in modules for tensor in module}.values())
