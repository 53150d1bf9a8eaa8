"""What a forward pass keeps for the backward pass: tensors that autograd saves, of one rank and one micro batch.

Counted from transformers' modeling_llama.py and its ForCausalLMLoss, which computes in fp32. A module's part is let go
when its backward pass is done.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from deepspeed_operator.plan.model import Attention, Model, Module, Shape, Tensor

_FP32: Final = 4
# RMSNorm's backward pass holds so many fp32 rows at once, the MLP's so many rows of the intermediate size.
_NORM_ROWS: Final = 4
_MLP_ROWS: Final = 2


@dataclass(frozen=True)
class Piece:
    """A module in the order of the forward pass: its trained parameters by size, and the bytes that it keeps.

    `again` is there only while the backward pass computes its layer a second time.
    """

    trained: tuple[int, ...]
    kept: float = 0
    again: float = 0
    layer: str = ""


@dataclass(frozen=True)
class Activations:
    """The loss holds `forward` and `backward` beside the pieces at its highest, `logits` between the two passes.

    `given` is the gradient of what the head returned, `working` the most that one module's backward pass adds.
    """

    pieces: tuple[Piece, ...]
    forward: float = 0
    backward: float = 0
    logits: float = 0
    given: float = 0
    working: float = 0
    again: float = 0

    @cached_property
    def kept(self) -> float:
        return sum(piece.kept for piece in self.pieces)


def activations(model: Model, micro: int, width: int, *, tensor: int = 1, sequence: int = 1) -> Activations:
    """Return the activations of `micro` samples in numbers of `width` bytes, among `tensor` and `sequence` ranks.

    Where the model's shape or the length of a sample is not known, nothing is counted.
    """
    shape, usage = model.shape, model.usage
    modules = model.modules or _stand_ins(model)
    if shape is None or usage.sequence is None:
        return Activations(tuple(Piece(_trained(module)) for module in modules))
    tokens = micro * usage.sequence / sequence
    sizes = _sizes(model, shape, width, tensor, usage.sequence)
    layer_input = tokens * width * shape.hidden if usage.checkpointing else None
    scores, given = (tokens * each * shape.vocabulary for each in (_FP32, width))
    return Activations(
        tuple(_piece(module, sizes, tokens, layer_input) for module in modules),
        # In fp32, what the head returns is what the loss computes with.
        forward=2 * scores + (given if width < _FP32 else 0),
        backward=3 * scores,
        logits=scores,
        given=given,
        working=tokens * max(_NORM_ROWS * _FP32 * shape.hidden, _MLP_ROWS * width * shape.intermediate / tensor),
        again=tokens * sizes[_WHOLE] if usage.checkpointing else 0,
    )


def _sizes(model: Model, shape: Shape, width: int, tensor: int, sequence: int) -> Mapping[str, float]:
    """Return the bytes of a token that a layer's modules keep, at the one that the backward pass comes to last."""
    hidden, inner = width * shape.hidden, width * shape.intermediate
    # Of each norm: the fp32 input; what the weight multiplies, if it is trained; the output, if what takes it is.
    adapted = model.usage.adapted
    norm = _FP32 * shape.hidden + (0 if adapted else hidden)
    taken = [not adapted or bool(names & set(adapted)) for names in _TAKERS]
    if model.usage.attention is Attention.EAGER:
        # Scores are fp32 in softmax, then of the model's type; keys and values are repeated for each query.
        scores = shape.heads * sequence * (_FP32 + (width if width < _FP32 else 0))
        attention = width * 4 * shape.queries + scores
    else:
        attention = width * 2 * (shape.queries + shape.keys) + _FP32 * shape.heads
    mlp = (3 + taken[2]) * inner
    first, second = norm + taken[0] * hidden, norm + taken[1] * hidden
    return {
        "input_layernorm": first,
        "post_attention_layernorm": second,
        "norm": norm + (0 if adapted else hidden),
        "q_proj": attention / tensor,
        "gate_proj": mlp / tensor,
        _WHOLE: first + second + (attention + mlp) / tensor,
    }


# Linear modules that take the first norm's output, the second one's, and the MLP's.
_TAKERS: Final = ({"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"}, {"down_proj"})


def _piece(module: Module, sizes: Mapping[str, float], tokens: float, layer_input: float | None) -> Piece:
    """`layer_input`: what activation checkpointing keeps of a whole layer."""
    *path, _ = module[0].name.split(".")
    kept = tokens * sizes.get(path[-1] if path else "", 0)
    layer = path[1] if path[:1] == ["layers"] else ""
    if layer_input is None or not layer:
        return Piece(_trained(module), kept, layer=layer)
    first = path[-1] in _FIRST
    return Piece(_trained(module), layer_input if first else 0, kept, layer)


_WHOLE: Final = "whole"
_FIRST: Final = ("input_layernorm", _WHOLE)
# Among so many equal parts a model is divided of which only the number of parameters is known.
_UNKNOWN_LAYERS: Final = 64


def _stand_ins(model: Model) -> tuple[Module, ...]:
    """Equal layers, between the two matrices of the vocabulary where these are known."""
    shape = model.shape
    ends = shape.vocabulary * shape.hidden if shape else 0
    layers = shape.layers if shape else _UNKNOWN_LAYERS
    inner = max(0, model.parameters - 2 * ends) // layers
    share = model.trained / model.parameters
    middle = (_part(f"layers.{index}.{_WHOLE}", inner, share) for index in range(layers))
    return (_part("embed_tokens", ends, share), *middle, _part("lm_head", ends, share))


def _part(name: str, elements: int, share: float) -> Module:
    trained = round(elements * share)
    frozen = Tensor(f"{name}.frozen", elements - trained, trained=False)
    return (Tensor(f"{name}.weight", trained), frozen)


def _trained(module: Module) -> tuple[int, ...]:
    return tuple(tensor.elements for tensor in module if tensor.trained and tensor.elements)
