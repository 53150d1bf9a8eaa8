"""What a forward pass keeps for the backward pass: tensors that autograd saves, of one rank and one micro batch.

Counted from transformers' modeling_*.py and its ForCausalLMLoss, which computes in fp32; plan/model/families.py says
what a layer is made of. A module's part is let go when its backward pass is done.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from deepspeed_operator.plan.memory.layers import FP32, WHOLE, LayerBytes, layer_bytes, outside
from deepspeed_operator.plan.model.architecture import Model, Module, Shape, Tensor, Usage, first_trained, layer_of


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

    `given` is the gradient of what the head returned.
    """

    pieces: tuple[Piece, ...]
    forward: float = 0
    backward: float = 0
    logits: float = 0
    given: float = 0

    @cached_property
    def kept(self) -> float:
        return sum(piece.kept for piece in self.pieces)

    @cached_property
    def again(self) -> Mapping[str, float]:
        """What each layer keeps that is computed a second time."""
        found: dict[str, float] = {}
        for piece in self.pieces:
            found[piece.layer] = found.get(piece.layer, 0) + piece.again
        return found


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
        return Activations(tuple(_pieces(modules, lambda _: LayerBytes(), share=trained)))
    tokens = micro * usage.sequence / sequence
    beside = outside(shape, usage, usage.sequence, width, tokens)
    sizes = {"sequence": usage.sequence, "width": width, "tensor": tensor}
    kinds: dict[tuple[bool, bool], LayerBytes] = {}
    for number in range(shape.layers):
        if shape.kind(number) not in kinds:
            kinds[shape.kind(number)] = layer_bytes(shape, usage, number, tokens=tokens, **sizes)

    def bytes_of(layer: str) -> LayerBytes:
        return kinds[shape.kind(int(layer))] if layer else beside

    layer_input = tokens * width * shape.hidden if usage.checkpointing else None
    scores, given = (tokens * each * shape.vocabulary for each in (FP32, width))
    # What the tanh returned.
    capped = given if shape.capped else 0
    return Activations(
        tuple(_pieces(modules, bytes_of, layer_input, share=trained)),
        # In fp32, what the head returns is what the loss computes with.
        forward=2 * scores + (given if width < FP32 else 0) + capped,
        backward=3 * scores + capped,
        logits=scores + capped,
        given=given,
    )


def _pieces(
    modules: tuple[Module, ...],
    bytes_of: Callable[[str], LayerBytes],
    layer_input: float | None = None,
    *,
    share: float,
) -> Iterator[Piece]:
    """`bytes_of`: by the number of a layer, or outside of all by an empty string.

    `layer_input`: what activation checkpointing keeps of a whole layer; `share`: how much of each tensor that may be
    trained is.
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
        found = bytes_of(layer)
        held = again = found.kept.get(name, 0)
        if layer_input is None or not layer:
            again = 0
        else:
            held = layer_input if name in (found.first, WHOLE) else 0
        yield Piece(trained, held, found.working.get(name, 0), again, layer, waits, joins)


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


# Among so many equal parts a model is divided of which only the number of parameters is known.
_UNKNOWN_LAYERS: Final = 64


def _stand_ins(model: Model) -> tuple[Module, ...]:
    """Equal layers, between the two matrices of the vocabulary where these are known."""
    shape = model.shape
    ends = shape.vocabulary * shape.hidden if shape else 0
    layers = shape.layers if shape else _UNKNOWN_LAYERS
    inner = max(0, model.parameters - 2 * ends) // layers
    share = model.trained / model.parameters
    middle = (_part(f"layers.{index}.{WHOLE}", inner, share) for index in range(layers))
    return (_part("embed_tokens", ends, share), *middle, _part("lm_head", ends, share))


def _part(name: str, elements: int, share: float) -> Module:
    trained = round(elements * share)
    frozen = Tensor(f"{name}.frozen", elements - trained, trained=False)
    return (Tensor(f"{name}.weight", trained), frozen)
