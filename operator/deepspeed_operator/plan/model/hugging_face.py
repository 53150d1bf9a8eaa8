"""The model that a config.json of transformers describes."""

from collections.abc import Mapping
from math import prod
from typing import Any, Final

from deepspeed_operator.job.provenance import Fact, Source
from deepspeed_operator.plan.model.architecture import (
    Dropout,
    Model,
    Module,
    Shape,
    Tensor,
    UnknownModelError,
    Usage,
    total,
)
from deepspeed_operator.plan.model.families import FAMILIES, Family, Linear, Norm, Norming, Option


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
        Fact("parameters", total(modules), Source.HUGGING_FACE_CONFIG),
        Fact("layers", shape.layers, Source.HUGGING_FACE_CONFIG),
        Fact("hidden size", shape.hidden, Source.HUGGING_FACE_CONFIG),
        Fact("vocabulary", shape.vocabulary, Source.HUGGING_FACE_CONFIG),
    )
    usage = Usage(longest=longest if type(longest) is int and longest > 0 else None)
    return Model(total(modules), tuple(modules), shape, facts, usage=usage)


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
