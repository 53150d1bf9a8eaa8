"""Towers of models that see images: modules whose parameters count, and whose work depends on images nobody declares.

Read in transformers' modeling_*.py, 5.17. A tower comes between the embedding and the first layer.
"""

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any, Final

from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.plan.model.architecture import Module, Tensor, UnknownModelError

_Config = Mapping[str, Any]


def tower_of(config: _Config) -> tuple[Module, ...] | None:
    """Return the modules of a config.json that are none of its text_config's; None: how many they have is not known."""
    others = [name for name in config if name.endswith("_config") and name not in _NO_MODULES]
    if not others:
        return ()
    tower = _TOWERS.get(str(config.get("model_type")))
    return tuple(tower(config)) if tower is not None and others == ["vision_config"] else None


# Of the text, and of how numbers are stored.
_NO_MODULES: Final = ("text_config", "quantization_config")


def _qwen3_vl(config: _Config) -> Iterator[Module]:
    vision = object_at(config, "vision_config")
    hidden, inner, out = (_number(vision, name) for name in ("hidden_size", "intermediate_size", "out_hidden_size"))
    merged = hidden * _number(vision, "spatial_merge_size") ** 2
    patch = _number(vision, "in_channels") * _number(vision, "temporal_patch_size") * _number(vision, "patch_size") ** 2
    yield _linear("visual.patch_embed.proj", patch, hidden)
    yield (Tensor("visual.pos_embed.weight", _number(vision, "num_position_embeddings") * hidden),)
    for block in range(_number(vision, "depth")):
        name = f"visual.blocks.{block}"
        yield _norm(f"{name}.norm1", hidden)
        yield _linear(f"{name}.attn.qkv", hidden, 3 * hidden)
        yield _linear(f"{name}.attn.proj", hidden, hidden)
        yield _norm(f"{name}.norm2", hidden)
        yield _linear(f"{name}.mlp.linear_fc1", hidden, inner)
        yield _linear(f"{name}.mlp.linear_fc2", inner, hidden)
    deep = vision.get("deepstack_visual_indexes")
    mergers = {"visual.merger": hidden}
    mergers |= {
        f"visual.deepstack_merger_list.{index}": merged for index in range(len(deep if deep is not None else _DEEP))
    }
    for name, normed in mergers.items():
        yield _norm(f"{name}.norm", normed)
        yield _linear(f"{name}.linear_fc1", merged, merged)
        yield _linear(f"{name}.linear_fc2", merged, out)


# What config.json may leave out.
_DEEP: Final = (8, 16, 24)
_DEFAULTS: Final = {
    "in_channels": 3,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "num_position_embeddings": 2304,
    "num_channels": 3,
}


def _gemma3(config: _Config) -> Iterator[Module]:
    vision = object_at(config, "vision_config")
    hidden, inner = _number(vision, "hidden_size"), _number(vision, "intermediate_size")
    patch = _number(vision, "patch_size")
    yield _linear("vision_tower.embeddings.patch_embedding", _number(vision, "num_channels") * patch**2, hidden)
    positions = (_number(vision, "image_size") // patch) ** 2
    yield (Tensor("vision_tower.embeddings.position_embedding.weight", positions * hidden),)
    for layer in range(_number(vision, "num_hidden_layers")):
        name = f"vision_tower.encoder.layers.{layer}"
        yield _norm(f"{name}.layer_norm1", hidden)
        for projection in ("k_proj", "v_proj", "q_proj", "out_proj"):
            yield _linear(f"{name}.self_attn.{projection}", hidden, hidden)
        yield _norm(f"{name}.layer_norm2", hidden)
        yield _linear(f"{name}.mlp.fc1", hidden, inner)
        yield _linear(f"{name}.mlp.fc2", inner, hidden)
    yield _norm("vision_tower.post_layernorm", hidden)
    if vision.get("vision_use_head", True):
        raise UnknownModelError("vision_config.vision_use_head of model_type 'gemma3' is not known: declare parameters")
    projector, text = "multi_modal_projector", _number(object_at(config, "text_config"), "hidden_size")
    yield (Tensor(f"{projector}.mm_input_projection_weight", hidden * text),)
    yield (Tensor(f"{projector}.mm_soft_emb_norm.weight", hidden),)


_TOWERS: Final[Mapping[str, Callable[[_Config], Iterator[Module]]]] = {
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
    "gemma3": _gemma3,
}


def _number(vision: _Config, name: str) -> int:
    value = vision.get(name, _DEFAULTS.get(name))
    if type(value) is not int or value < 1:
        raise UnknownModelError(f"vision_config.{name} must be a whole number above 0, not {value!r}")
    return value


def _linear(name: str, *sizes: int) -> Module:
    return Tensor(f"{name}.weight", prod(sizes)), Tensor(f"{name}.bias", sizes[-1])


def _norm(name: str, size: int) -> Module:
    return Tensor(f"{name}.weight", size), Tensor(f"{name}.bias", size)
