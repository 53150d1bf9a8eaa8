"""The model that a config.json of transformers describes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any, Final

from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.job.provenance import Fact, Source
from deepspeed_operator.plan.model.architecture import (
    TOWERS,
    Dropout,
    Mixture,
    Model,
    Module,
    Shape,
    Tensor,
    UnknownModelError,
    Usage,
    Window,
    total,
)
from deepspeed_operator.plan.model.families import FAMILIES, WHOLE_QUERIES
from deepspeed_operator.plan.model.parts import (
    Family,
    GroupedExperts,
    Linear,
    Norm,
    Norming,
    Option,
    Part,
    Router,
    Sinks,
    Width,
)
from deepspeed_operator.plan.model.towers import tower_of


def from_hugging_face(config: Mapping[str, Any], parameters: int | None = None) -> Model:
    """Read a config.json of transformers; `parameters`: those of the whole model, where a user says so.

    Raises UnknownModelError.
    """
    text = object_at(config, "text_config")
    if not text:
        return _read(config, ())
    outer = config.get("model_type")
    name = text.get("model_type") if "model_type" in text else f"{outer}_text"
    tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings"))
    text = {**text, "model_type": name, "tie_word_embeddings": tied}
    tower = tower_of(config)
    if tower is not None:
        return _read(text, tower)
    if parameters is None:
        raise UnknownModelError(
            f"what model_type {outer!r} has beside its text_config is not known: declare parameters"
        )
    rest = parameters - _read(text, ()).parameters
    if rest < 0:
        raise UnknownModelError(f"parameters {parameters} are fewer than those of fromConfig's text_config")
    return _read(text, ((Tensor(f"{TOWERS[0]}all", rest),),))


def _read(config: Mapping[str, Any], tower: tuple[Module, ...]) -> Model:
    name = config.get("model_type")
    family = FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        known = ", ".join(FAMILIES)
        raise UnknownModelError(f"model_type {name!r} is not one of {known}: declare its parameters instead")
    if family.latent and config.get("q_lora_rank") is None:
        family = replace(family, attention=WHOLE_QUERIES)
    for option in family.only:
        if _given(config, option) != option.default:
            words = f"{option.key} {config[option.key]!r} of model_type {name!r} is not known"
            raise UnknownModelError(f"{words}: declare its parameters instead")
    shape = _shape(config, family)
    modules: list[Module] = [_matrix("embed_tokens", shape.vocabulary, shape.hidden), *tower]
    if family.positions is not None:
        rows = _number(config, family, "max_position_embeddings") + family.positions
        modules.append(_matrix("embed_positions", rows, shape.hidden))
    for layer in range(shape.layers):
        modules += [_module(f"layers.{layer}.{part.name}", part, shape, config) for part in shape.parts(layer)]
    modules.append(_module("norm", Norm("norm"), shape, config))
    tied = bool(_given(config, Option("tie_word_embeddings", family.tied)))
    modules.append(_matrix("embed_tokens" if tied else "lm_head", shape.vocabulary, shape.hidden))
    longest = _optional(config, family.key("max_position_embeddings"))
    usage, facts = Usage(longest=longest or None), tuple(_facts(modules, shape))
    return Model(total(modules), tuple(modules), shape, facts, usage=usage)


def _facts(modules: list[Module], shape: Shape) -> Iterator[Fact]:
    yield Fact("parameters", total(modules), Source.HUGGING_FACE_CONFIG)
    yield Fact("layers", shape.layers, Source.HUGGING_FACE_CONFIG)
    yield Fact("hidden size", shape.hidden, Source.HUGGING_FACE_CONFIG)
    yield Fact("vocabulary", shape.vocabulary, Source.HUGGING_FACE_CONFIG)
    if shape.mixture is not None:
        mixture = shape.mixture
        words = f"{mixture.count} in each of {len(mixture.layers)} layers, {mixture.chosen} for a token"
        yield Fact("experts", words, Source.HUGGING_FACE_CONFIG)


def _module(name: str, part: Part, shape: Shape, config: Mapping[str, Any]) -> Module:
    match part:
        case Norm():
            return _matrix(name, shape.width(part.weights), biased=shape.family.norming is Norming.LAYER)
        case Linear():
            biased = _given(config, part.biased) if isinstance(part.biased, Option) else part.biased
            return _matrix(name, sum(map(shape.width, part.out)), shape.width(part.into), biased=bool(biased))
        case Router():
            return _matrix(name, shape.width("experts"), shape.hidden, biased=part.biased)
        case Sinks():
            return (Tensor(f"{name}.sinks", shape.heads),)
        case GroupedExperts():
            count, inner = shape.width("experts"), shape.width("gate_up")
            found = {"gate_up_proj": count * inner * shape.hidden, "down_proj": count * shape.hidden * inner // 2}
            if part.biased:
                found |= {"gate_up_proj_bias": count * inner, "down_proj_bias": count * shape.hidden}
            return tuple(Tensor(f"{name}.{tensor}", elements) for tensor, elements in found.items())


# More than any model has: what is simulated layer by layer must end soon.
_MOST_LAYERS: Final = 1000


# Of the hidden size, where the width inside the MLP may be left out.
_USUAL_MLP: Final = 4


def _shape(config: Mapping[str, Any], family: Family) -> Shape:
    hidden = _number(config, family, "hidden_size")
    heads = _number(config, family, "num_attention_heads")
    layers = _number(config, family, "num_hidden_layers")
    if layers > _MOST_LAYERS:
        raise UnknownModelError(f"num_hidden_layers must be {_MOST_LAYERS} or less, not {layers}")
    inner = None if family.gated or family.mixed else _USUAL_MLP * hidden
    dropouts = (family.attention_dropout, family.residual_dropout, family.embedding_dropout)
    others: dict[Width, int] = {**_latent(config, family, heads), **_inside_experts(config, family)}
    if family.latent:
        queries = keys = others["queries"]
    else:
        head = _number(config, family, "head_dim", family.head or hidden // heads)
        queries, keys = heads * head, _number(config, family, "num_key_value_heads", heads) * head
    return Shape(
        layers=layers,
        hidden=hidden,
        intermediate=_number(config, family, "intermediate_size", inner),
        heads=heads,
        vocabulary=_number(config, family, "vocab_size"),
        queries=queries,
        keys=keys,
        family=family,
        activation=str(_given(config, family.activation)),
        dropout=Dropout(*(option is not None and bool(_given(config, option)) for option in dropouts)),
        others=tuple(others.items()),
        mixture=_mixture(config, family, layers),
        window=_window(config, family, layers),
        capped=_capped(config, family.capped),
        scores_capped=_capped(config, family.scores_capped),
    )


def _latent(config: Mapping[str, Any], family: Family, heads: int) -> dict[Width, int]:
    """Widths of attention by latents: a part of each head is not rotated, and one rotated part is all heads'."""
    if not family.latent:
        return {}
    plain, rotated, values, key_rank = (
        _number(config, family, name) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank")
    )
    return {
        "queries": heads * (plain + rotated),
        "query_rank": _optional(config, "q_lora_rank"),
        "key_rank": key_rank,
        "compressed": key_rank + rotated,
        "expanded": heads * (plain + values),
        "values": heads * values,
    }


# Of one meaning, by the family and by the version of transformers that wrote them.
_COUNTS: Final = ("num_local_experts", "num_experts", "n_routed_experts")


def _inside_experts(config: Mapping[str, Any], family: Family) -> dict[Width, int]:
    mixed = family.mixed
    if mixed is None:
        return {}
    inner = _number(config, family, mixed.width)
    found: dict[Width, int] = {"experts": _count(config, family), "expert": inner, "gate_up": 2 * inner}
    if mixed.shared is not None:
        times = _number(config, family, mixed.times) if mixed.times is not None else 1
        found["shared"] = times * _number(config, family, mixed.shared)
    return found


def _count(config: Mapping[str, Any], family: Family) -> int:
    return _number(config, family, next((name for name in _COUNTS if name in config), _COUNTS[0]))


def _mixture(config: Mapping[str, Any], family: Family, layers: int) -> Mixture | None:
    mixed = family.mixed
    if mixed is None:
        return None
    first = _optional(config, mixed.dense) if mixed.dense is not None else 0
    step = _number(config, family, mixed.step, 1) if mixed.step is not None else 1
    plain = config.get(mixed.plain) or () if mixed.plain is not None else ()
    if not isinstance(plain, list | tuple):
        raise UnknownModelError(f"{mixed.plain} must be a list of layers, not {plain!r}")
    having = (layer for layer in range(first, layers) if (layer + 1) % step == 0 and layer not in plain)
    return Mixture(_count(config, family), _number(config, family, mixed.chosen), frozenset(having))


def _window(config: Mapping[str, Any], family: Family, layers: int) -> Window | None:
    tokens = _optional(config, "sliding_window")
    if family.windows is None or not tokens:
        return None
    every = _optional(config, "sliding_window_pattern") or family.windows
    types = config.get("layer_types")
    if isinstance(types, list):
        sliding = [layer for layer in range(layers) if types[layer : layer + 1] == [_SLIDING]]
    else:
        sliding = [layer for layer in range(layers) if (layer + 1) % every]
    return Window(tokens, frozenset(sliding))


_SLIDING: Final = "sliding_attention"


def _given(config: Mapping[str, Any], option: Option) -> Any:
    value = config.get(option.key)
    return option.default if value is None else value


def _capped(config: Mapping[str, Any], option: Option | None) -> bool:
    # Null is a setting of its own here: no cap.
    return option is not None and config.get(option.key, option.default) is not None


def _optional(config: Mapping[str, Any], key: str) -> int:
    """Return a whole number, 0 where there is none."""
    value = config.get(key)
    return value if type(value) is int and value > 0 else 0


def _number(config: Mapping[str, Any], family: Family, name: str, default: int | None = None) -> int:
    key = family.key(name)
    value = config.get(key)
    if value is None:
        value = dict(family.defaults).get(name, default)
    if type(value) is not int or value < 1:
        raise UnknownModelError(f"{key} must be a whole number above 0, not {value!r}")
    return value


def _matrix(name: str, *sizes: int, biased: bool = False) -> Module:
    weight = Tensor(f"{name}.weight", prod(sizes))
    return (weight, Tensor(f"{name}.bias", sizes[0])) if biased else (weight,)
