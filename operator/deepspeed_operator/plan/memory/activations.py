"""What a forward pass keeps for the backward pass: tensors that autograd saves, of one rank and one micro batch.

Counted from transformers' modeling_*.py and its ForCausalLMLoss, which computes in fp32; plan/model/families.py says
what a layer is made of. A module's part is let go when its backward pass is done.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import Final

from deepspeed_operator.plan.model.architecture import (
    Attention,
    Model,
    Module,
    Shape,
    Tensor,
    Usage,
    first_trained,
    layer_of,
)
from deepspeed_operator.plan.model.families import Linear, Norm, Norming

_FP32: Final = 4
# Of a number that may be dropped.
_MASK: Final = 1
# What a backward pass holds at once: RMSNorm's so many fp32 rows, LayerNorm's so many of the model's type, the MLP's so
# many rows of the intermediate size beyond what it has let go of.
_NORM_ROWS: Final = {Norming.RMS: 4, Norming.LAYER: 1}
_MLP_ROWS: Final = 2
# Rows of the intermediate size that an activation function keeps beside what it returns: its input, where it is one
# operation; gelu_new is several.
_KEPT_BY: Final = {"gelu_new": 4, "relu": 0}
_INPUT: Final = 1
# It keeps what it returns.
_RELU: Final = "relu"
# Of a gated MLP, what the activation function returns, and what that is multiplied with.
_GATED: Final = 2


@dataclass(frozen=True)
class Piece:
    """A module in the order of the forward pass: its trained parameters by size, and the bytes that it keeps.

    `working` is what its backward pass adds; `again` is there only while that computes its layer a second time. A tied
    parameter is `trained` where it is used first: the gradient of its second use `waits` until it `joins` that one's.
    """

    trained: tuple[int, ...]
    kept: float = 0
    working: float = 0
    again: float = 0
    layer: str = ""
    waits: int = 0
    joins: int = 0


@dataclass(frozen=True)
class Activations:
    """The loss holds `forward` and `backward` beside the pieces at its highest, `logits` between the two passes.

    `given` is the gradient of what the head returned, `again` what a layer that is computed a second time keeps.
    """

    pieces: tuple[Piece, ...]
    forward: float = 0
    backward: float = 0
    logits: float = 0
    given: float = 0
    again: float = 0

    @cached_property
    def kept(self) -> float:
        return sum(piece.kept for piece in self.pieces)


def activations(model: Model, micro: int, width: int, *, tensor: int = 1, sequence: int = 1) -> Activations:
    """Return the activations of `micro` samples in numbers of `width` bytes, among `tensor` and `sequence` ranks.

    Where the model's shape or the length of a sample is not known, nothing is counted.
    """
    # Of each tensor as much as of the whole, where it is not known which are trained.
    trained = model.trained / model.parameters if model.modules and model.freezes_some else 1
    modules = model.modules or _stand_ins(model)
    sizes = {"micro": micro, "width": width, "tensor": tensor, "sequence": sequence}
    return _activations(modules, model.shape, model.usage, trained=trained, **sizes)


# The planner asks for many configurations, of which few differ in the micro batch.
@lru_cache(maxsize=32)
def _activations(
    modules: tuple[Module, ...],
    shape: Shape | None,
    usage: Usage,
    *,
    trained: float,
    micro: int,
    width: int,
    tensor: int,
    sequence: int,
) -> Activations:
    if shape is None or usage.sequence is None:
        return Activations(tuple(_pieces(modules, {}, {}, "", share=trained)))
    tokens = micro * usage.sequence / sequence
    layer = _Layer(shape, usage, usage.sequence, width, tensor)
    kept, working = ({name: tokens * size for name, size in each.items()} for each in (layer.kept(), layer.working()))
    layer_input = tokens * width * shape.hidden if usage.checkpointing else None
    scores, given = (tokens * each * shape.vocabulary for each in (_FP32, width))
    return Activations(
        tuple(_pieces(modules, kept, working, shape.family.layer[0].name, layer_input, share=trained)),
        # In fp32, what the head returns is what the loss computes with.
        forward=2 * scores + (given if width < _FP32 else 0),
        backward=3 * scores,
        logits=scores,
        given=given,
        again=kept[_WHOLE] if usage.checkpointing else 0,
    )


@dataclass(frozen=True)
class _Layer:
    """Bytes of a token, in numbers of `width` bytes, where `tensor` ranks divide what linear modules return."""

    shape: Shape
    usage: Usage
    sequence: int
    width: int
    tensor: int

    def kept(self) -> dict[str, float]:
        """Return what each module keeps: of attention and the MLP, the one that the backward pass comes to last."""
        shape, family = self.shape, self.shape.family
        parts = family.layer
        kept = {part.name: self._norm(part, _takers(part, parts[index + 1 :])) for index, part in _norms(parts)}
        masks = {family.last_of_attention.name, family.last_of_mlp.name} if shape.dropout.residual else set[str]()
        kept |= {linear.name: _MASK * shape.hidden * (linear.name in masks) for linear in family.linears}
        kept[family.first_of_attention.name] += self._attention() / self.tensor
        kept[family.first_of_mlp.name] += self._mlp() / self.tensor
        embedding = "embed_tokens" if family.positions is None else "embed_positions"
        return {
            **kept,
            _WHOLE: sum(kept.values()),
            embedding: _MASK * shape.hidden * shape.dropout.embedding,
            "norm": self._norm(Norm("norm"), None),
        }

    def working(self) -> dict[str, float]:
        """Return what each module's backward pass adds to what is kept: of attention and the MLP, at the same ones."""
        family = self.shape.family
        row = _NORM_ROWS[family.norming] * (_FP32 if self._exact else self.width)
        working = {part.name: float(row * self.shape.width(part.of)) for _, part in _norms(family.layer)}
        softmax = max(self.width, 2 * self._softmax - self._beside_softmax) if self._keeps_scores else 0
        working[family.first_of_attention.name] = softmax * self._pairs / self.tensor
        working[family.first_of_mlp.name] = _MLP_ROWS * self.width * self.shape.intermediate / self.tensor
        return {**working, "norm": float(row * self.shape.hidden), _WHOLE: max(working.values())}

    def _norm(self, part: Norm, takers: tuple[Linear, ...] | None) -> float:
        """`takers`: what takes the norm's output, None for the head."""
        size, trained = self.shape.width(part.of), not self.usage.adapted
        taken = trained if takers is None else any(map(self._trains, takers))
        output = self.width * size * taken
        if self._exact:
            # The fp32 input, and what the weight multiplies.
            return _FP32 * size + self.width * size * trained + output
        return self.width * size * (not part.again) + output

    def _attention(self) -> float:
        shape, width = self.shape, self.width
        queries, outward = width * shape.queries, width * shape.queries * self._trains(shape.family.last_of_attention)
        if self._keeps_scores:
            # Keys and values are repeated for each query.
            return 3 * queries + outward + (self._softmax + self._beside_softmax) * self._pairs
        kept = 2 * queries + 2 * width * shape.keys + _FP32 * shape.heads
        if shape.family.rotates_parts:
            kept += queries + width * shape.keys
            # Flash attention returns what is laid out as queries are, which is not what comes next needs.
            kept += outward if width < _FP32 else 0
        return kept

    def _mlp(self) -> float:
        activation, family = self.shape.activation, self.shape.family
        rows = _KEPT_BY.get(activation, _INPUT) + (_GATED if family.gated else 0)
        rows += self._trains(family.last_of_mlp) or (activation == _RELU and not family.gated)
        return self.width * self.shape.intermediate * rows

    def _trains(self, linear: Linear) -> bool:
        return not self.usage.adapted or linear.adapted_by(self.usage.adapted)

    @property
    def _exact(self) -> bool:
        """Whether norms compute in fp32."""
        return self.shape.family.norming is Norming.RMS

    @property
    def _keeps_scores(self) -> bool:
        """No kernel without scores takes grouped keys in fp32."""
        grouped = self.shape.keys < self.shape.queries
        return self.usage.attention is Attention.EAGER or (grouped and self.width == _FP32)

    @property
    def _pairs(self) -> int:
        return self.shape.heads * self.sequence

    @property
    def _softmax(self) -> int:
        return _FP32 if self.shape.family.upcasts else self.width

    @property
    def _beside_softmax(self) -> int:
        """Bytes of a pair of tokens: what values are multiplied with, where that is not what softmax returned."""
        dropped = self.shape.dropout.attention
        return _MASK * dropped + (self.width if dropped or self.width < self._softmax else 0)


def _norms(parts: tuple[Norm | Linear, ...]) -> Iterator[tuple[int, Norm]]:
    return ((index, part) for index, part in enumerate(parts) if isinstance(part, Norm))


def _takers(norm: Norm, following: Iterable[Norm | Linear]) -> tuple[Linear, ...]:
    """Return the linear modules that take what a norm returns: nothing else does with a norm of heads."""
    if norm.of != "hidden":
        return ()
    parts = takewhile(lambda part: isinstance(part, Linear) or part.of != "hidden", following)
    return tuple(part for part in parts if isinstance(part, Linear) and part.into == "hidden")


def _pieces(
    modules: tuple[Module, ...],
    kept: Mapping[str, float],
    working: Mapping[str, float],
    first: str,
    layer_input: float | None = None,
    *,
    share: float,
) -> Iterator[Piece]:
    """`first`: a layer's first module; `layer_input`: what activation checkpointing keeps of a whole layer.

    `share`: how much of each tensor that may be trained is.
    """
    uses = Counter(tensor for module in modules for tensor in module if tensor.trained)
    seen = set[Tensor]()
    begin = _begin(modules)
    for index, module in enumerate(modules):
        if index < begin:
            yield Piece((), layer=layer_of(module))
            continue
        new = [tensor for tensor in module if tensor.trained and tensor not in seen]
        waits = round(share * sum(tensor.elements for tensor in module if tensor in seen))
        joins = round(share * sum(tensor.elements for tensor in new if uses[tensor] > 1))
        seen.update(new)
        trained = tuple(round(share * tensor.elements) for tensor in new if tensor.elements)
        layer, name = _place(module)
        held = again = kept.get(name, 0)
        if layer_input is None or not layer:
            again = 0
        else:
            held = layer_input if name in (first, _WHOLE) else 0
        yield Piece(trained, held, working.get(name, 0), again, layer, waits, joins)


def _begin(modules: tuple[Module, ...]) -> int:
    """Return where autograd begins to keep something: at the layer, or beside them the module, that is trained first.

    What its frozen modules before that one do not keep is counted; where nothing is known to be trained, all is.
    """
    first = first_trained(modules)
    layer = layer_of(modules[first]) if modules else ""
    while layer and first and layer_of(modules[first - 1]) == layer:
        first -= 1
    return first


def _place(module: Module) -> tuple[str, str]:
    """Return the number of a module's layer, empty outside of them, and its name there."""
    path, layer = module[0].name.rpartition(".")[0], layer_of(module)
    return layer, path.removeprefix(f"layers.{layer}.") if layer else path


_WHOLE: Final = "whole"
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
