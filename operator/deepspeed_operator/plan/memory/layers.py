"""What the modules of a decoder layer keep for the backward pass, and what that adds for a moment.

Counted from transformers' modeling_*.py; plan/model/families.py says what a layer is made of.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from deepspeed_operator.plan.model.architecture import Attention, Shape, Usage
from deepspeed_operator.plan.model.parts import GroupedExperts, Linear, Norm, Norming, Part, Router, linears_of

FP32: Final = 4
# Of a number that may be dropped.
_MASK: Final = 1
# What a backward pass holds at once: RMSNorm's so many fp32 rows, LayerNorm's so many of the model's type, the MLP's so
# many rows of the intermediate size beyond what it has let go of.
_NORM_ROWS: Final = {Norming.RMS: 4, Norming.EXACT: 4, Norming.LAYER: 1}
_MLP_ROWS: Final = 2
# Rows of the intermediate size that an activation function keeps beside what it returns: its input, where it is one
# operation; gelu_new is several.
_KEPT_BY: Final = {"gelu_new": 4, "relu": 0}
_INPUT: Final = 1
# It keeps what it returns.
_RELU: Final = "relu"
# Of a gated MLP, what the activation function returns, and what that is multiplied with.
_GATED: Final = 2
# Places of tokens among those that experts take: sorted, gathered, put back.
_PLACES: Final = 4 * 8
# All of a layer, of which no module is known.
WHOLE: Final = "whole"


def _nothing() -> dict[str, float]:
    return {}


@dataclass(frozen=True)
class LayerBytes:
    """Bytes of a micro batch by module. `first`: the module that the forward pass comes to first."""

    kept: Mapping[str, float] = field(default_factory=_nothing)
    working: Mapping[str, float] = field(default_factory=_nothing)
    first: str = ""


def outside(shape: Shape, usage: Usage, sequence: int, width: int, tokens: float) -> LayerBytes:
    """Return what modules outside of the layers keep and add."""
    layer = _Layer(shape, usage, (), sequence, width, 1)
    embedding = "embed_tokens" if shape.family.positions is None else "embed_positions"
    dropped = _MASK * shape.hidden * shape.dropout.embedding
    kept = {embedding: tokens * dropped, "norm": tokens * layer.norm(Norm("norm"), None)}
    return LayerBytes(kept, {"norm": tokens * layer.norm_row(Norm("norm"))})


def layer_bytes(
    shape: Shape, usage: Usage, number: int, *, sequence: int, width: int, tensor: int, tokens: float
) -> LayerBytes:
    """Return what the modules of the layer of this number keep and add, of `tokens` in numbers of `width` bytes.

    `sequence`: tokens of a sample; `tensor`: ranks that divide what linear modules return.
    """
    parts, window = shape.parts(number), shape.window
    masked = window is not None and number in window.layers and sequence >= window.tokens
    layer = _Layer(shape, usage, parts, sequence, width, tensor, masked and usage.attention is Attention.SDPA)
    kept, working = ({name: tokens * size for name, size in each.items()} for each in (layer.kept(), layer.working()))
    for router in parts:
        if isinstance(router, Router) and router.exact:
            # The weight in fp32, whatever the tokens.
            kept[router.name] += FP32 * shape.width("experts") * shape.hidden
    kept[WHOLE], working[WHOLE] = sum(kept.values()), max(working.values())
    return LayerBytes(kept, working, parts[0].name)


@dataclass(frozen=True)
class _Layer:
    """Bytes of a token, in numbers of `width` bytes, where `tensor` ranks divide what linear modules return.

    `masked`: whether attention is given a mask, with which no kernel takes grouped keys.
    """

    shape: Shape
    usage: Usage
    parts: tuple[Part, ...]
    sequence: int
    width: int
    tensor: int
    masked: bool = False

    def kept(self) -> dict[str, float]:
        """Return what each module keeps: of attention and an MLP, the one that the backward pass comes to last."""
        shape = self.shape
        kept = {part.name: 0.0 for part in self.parts}
        for index, part in enumerate(self.parts):
            match part:
                case Norm():
                    kept[part.name] = self.norm(part, _takers(part, self.parts[index + 1 :]))
                case Router():
                    kept[part.name] = self._router(part)
                case GroupedExperts():
                    kept[part.name] = self._experts(part) / self.tensor
                case _:
                    pass
        kept[self._attention_linears[0].name] += self._attention() / self.tensor
        for linears in self._mlps:
            kept[linears[0].name] += self._mlp(linears) / self.tensor
        if shape.dropout.residual:
            for linears in (self._attention_linears, *self._mlps):
                kept[linears[-1].name] += _MASK * shape.hidden
        for gate in (part for part in linears_of(self.parts) if part.out == ("one",)):
            # A sigmoid for each token, and what it is multiplied with.
            kept[gate.name] += self.width * (shape.hidden + 1)
        return kept

    def working(self) -> dict[str, float]:
        """Return what each module's backward pass adds to what is kept: of attention and the MLP, at the same ones."""
        working = {part.name: self.norm_row(part) for part in self.parts if isinstance(part, Norm)}
        softmax = max(self.width, 2 * self._softmax - self._beside_softmax) if self._keeps_scores else 0
        working[self._attention_linears[0].name] = softmax * self._pairs / self.tensor
        for linears in self._mlps:
            working[linears[0].name] = _MLP_ROWS * self.width * self.shape.width(linears[0].out[0]) / self.tensor
        for part in self.parts:
            if isinstance(part, GroupedExperts):
                working[part.name] = self._experts_working() / self.tensor
        return working

    def norm_row(self, part: Norm) -> float:
        """Return what the backward pass of a norm holds at once."""
        row = _NORM_ROWS[self.shape.family.norming] * (FP32 if self._in_fp32 else self.width)
        return float(row * self.shape.width(part.of))

    def norm(self, part: Norm, takers: tuple[Part, ...] | None) -> float:
        """Return what a norm keeps; `takers`: what takes its output, None for the head."""
        size, trained = self.shape.width(part.of), not self.usage.adapted
        taken = trained if takers is None else any(map(self._trains, takers))
        output = self.width * size * taken
        if self._in_fp32:
            # The fp32 input, and what the weight multiplies.
            exact = self.shape.family.norming is Norming.EXACT
            return FP32 * size + (FP32 if exact else self.width) * size * trained + output
        return self.width * size * (not part.again) + output

    def _attention(self) -> float:
        shape, width, family = self.shape, self.width, self.shape.family
        trains = self._trains(self._attention_linears[-1])
        queries, outward = width * shape.queries, width * shape.queries * trains
        if family.latent:
            out = width * shape.width("values")
            if self._keeps_scores:
                return 2 * queries + out + out * trains + self._scores
            # A kernel takes values where they are, beside what keys were copied from; what it returns is laid out anew.
            copied = out * trains if width < FP32 else 0
            return 2 * queries + width * shape.width("expanded") + out + copied + self._scores
        if self._keeps_scores:
            # Keys and values are repeated for each query.
            return 3 * queries + outward + self._scores
        if self.masked:
            # They are here, too; and the mask has the model's type.
            return 4 * queries + FP32 * shape.heads + width * self.sequence
        kept = 2 * queries + 2 * width * shape.keys + self._scores
        if family.rotates_parts:
            kept += queries + width * shape.keys
            # Flash attention returns what is laid out as queries are, which is not what comes next needs.
            kept += outward if width < FP32 else 0
        return kept

    def _mlp(self, linears: tuple[Linear, ...]) -> float:
        activation = self.shape.activation
        gated = sum(len(linear.out) for linear in linears[:-1]) > 1
        rows = _KEPT_BY.get(activation, _INPUT) + (_GATED if gated else 0)
        rows += self._trains(linears[-1]) or (activation == _RELU and not gated)
        return self.width * self.shape.width(linears[-1].into) * rows

    def _router(self, part: Router) -> float:
        # Softmax or a sigmoid in fp32, and the places of the highest scores.
        chosen = self._chosen
        if not part.exact:
            return FP32 * self.shape.width("experts") + 12 * chosen
        return FP32 * (self.shape.width("experts") + self.shape.hidden) + 16 * chosen

    def _experts(self, part: GroupedExperts) -> float:
        """What they take, what is inside of them, and what they return before it is weighed."""
        trained = not self.usage.adapted
        inside = (part.rows - (not trained)) * self.shape.width("expert")
        return self._chosen * (self.width * ((1 + trained) * self.shape.hidden + inside) + _PLACES)

    def _experts_working(self) -> float:
        return self._chosen * self.width * (2 * self.shape.width("expert") + self.shape.hidden)

    def _trains(self, part: Part) -> bool:
        adapted = self.usage.adapted
        return not adapted or (isinstance(part, Linear) and part.adapted_by(adapted))

    @property
    def _attention_linears(self) -> tuple[Linear, ...]:
        return linears_of(self.shape.family.attention)

    @property
    def _mlps(self) -> tuple[tuple[Linear, ...], ...]:
        """The linear modules of each MLP that is none of an expert."""
        others = linears_of(tuple(part for part in self.parts if part not in self.shape.family.attention))
        found = tuple(each for each in others if each.out != ("one",))
        return (found,) if found else ()

    @property
    def _chosen(self) -> int:
        return self.shape.mixture.chosen if self.shape.mixture is not None else 0

    @property
    def _in_fp32(self) -> bool:
        """Whether norms compute so."""
        return self.shape.family.norming is not Norming.LAYER

    @property
    def _keeps_scores(self) -> bool:
        """No kernel without scores takes grouped keys in fp32."""
        grouped = self.shape.keys < self.shape.queries
        return self.usage.attention is Attention.EAGER or (grouped and self.width == FP32)

    @property
    def _scores(self) -> float:
        """What softmax keeps, or a sum of each head in place of all scores."""
        if self._keeps_scores:
            capped = self.width if self._scores_capped else 0
            return (self._softmax + self._beside_softmax + capped) * self._pairs
        return FP32 * self.shape.heads

    @property
    def _scores_capped(self) -> bool:
        """Only eager attention does it."""
        return self.shape.scores_capped and self.usage.attention is Attention.EAGER

    @property
    def _pairs(self) -> int:
        return self.shape.heads * self.sequence

    @property
    def _softmax(self) -> int:
        return FP32 if self.shape.family.upcasts else self.width

    @property
    def _beside_softmax(self) -> int:
        """Bytes of a pair of tokens: what values are multiplied with, where that is not what softmax returned."""
        dropped = self.shape.dropout.attention
        return _MASK * dropped + (self.width if dropped or self.width < self._softmax else 0)


def _takers(norm: Norm, following: Iterable[Part]) -> tuple[Part, ...]:
    """Return what takes a norm's output and keeps it: nothing does with a norm of heads, nor with one before a sum."""
    if norm.of != norm.weights:
        return ()
    parts = takewhile(lambda part: not isinstance(part, Norm) or part.of != norm.of, following)
    return tuple(_taking(parts, norm))


def _taking(parts: Iterable[Part], norm: Norm) -> Iterator[Part]:
    for part in parts:
        if (isinstance(part, Linear) and part.into == norm.of) or isinstance(part, Router):
            yield part
