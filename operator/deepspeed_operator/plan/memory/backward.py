"""A backward pass, module by module: activations go, gradients come, buckets are reduced. Where it holds most?

Follows reduce_independent_p_g_buckets_and_remove_grads in runtime/zero/stage_1_and_2.py and stage3.py, and
allreduce_bucket in runtime/engine.py.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from deepspeed_operator.dsconfig.setup import ZeroStage
from deepspeed_operator.plan.engine.wrappers import Wrapper, keeps_gradients
from deepspeed_operator.plan.memory.activations import Piece
from deepspeed_operator.plan.memory.sizes import FP32, NORM, MemoryItem, Sizes


class Gradients(Protocol):
    """What becomes of gradients. `held` is there between two of them."""

    held: float
    bucket: float

    def take(self, size: int) -> float:
        """Take a gradient of so many numbers, and return what was there for a moment beside what is held."""
        ...

    def finish(self) -> float:
        """Reduce what was not yet, and return what was there for a moment beside what is held."""
        ...


def gradients_of(sizes: Sizes, *, last: bool) -> Gradients:
    """Return what this wrapper does in the first or in the last micro step."""
    earlier = last and sizes.accumulation > 1 and not keeps_gradients(sizes.setup, sizes.wrapper)
    match sizes.wrapper:
        case Wrapper.ZERO if sizes.setup.stage >= ZeroStage.GRADIENTS:
            return _Partitioned(sizes, earlier=earlier)
        case Wrapper.ZERO:
            return _Staged(sizes, earlier=earlier, last=last)
        case Wrapper.ZERO_3:
            return _Scattered(sizes)
        case _:
            return _Whole(sizes, earlier=earlier, last=last)


class _Whole:
    """Gradients stay whole, and are reduced in pieces once all are there."""

    def __init__(self, sizes: Sizes, *, earlier: bool, last: bool) -> None:
        self._sizes, self._earlier, self._last = sizes, earlier, last
        self.held = sizes.trained * sizes.width if earlier else 0.0
        self.bucket = 0.0

    def take(self, size: int) -> float:
        gradient = size * self._sizes.width
        if self._earlier:
            return gradient
        self.held += gradient
        return 0

    def finish(self) -> float:
        sizes = self._sizes
        # BF16_Optimizer adds each gradient to the sums, converted, and reduces the sums, which are one tensor.
        if sizes.wrapper is Wrapper.BF16:
            sent = sizes.trained * sizes.sent if self._last and sizes.sent != sizes.sums else 0
            return max(sent, sizes.largest * sizes.sums)
        if not self._last:
            return 0
        flat = min(sizes.trained, sizes.bucket + sizes.largest)
        return flat * (sizes.width + (sizes.sent if sizes.sent != sizes.width else 0))


class _Staged(_Whole):
    """Stage 1: a bucket waits from the first gradient on, until all gradients go through it."""

    def __init__(self, sizes: Sizes, *, earlier: bool, last: bool) -> None:
        super().__init__(sizes, earlier=earlier, last=last)
        self.bucket = sizes.bucket * sizes.buckets * sizes.width if earlier else 0.0

    def take(self, size: int) -> float:
        self.bucket = self._sizes.bucket * self._sizes.buckets * self._sizes.width
        return super().take(size)

    def finish(self) -> float:
        if not self._last:
            return 0
        sizes = self._sizes
        # What is in the bucket is no longer beside it; the rank's own part is copied out of it.
        inside = min(sizes.trained, sizes.bucket)
        part = 0 if sizes.offloaded else sizes.touched
        copied = inside * (sizes.width + (sizes.sent if sizes.sent != sizes.width else 0))
        if sizes.part >= inside and sizes.sent == sizes.width:
            copied = 0  # a bucket that is one rank's is sent as it is
        return max(part * sizes.width, copied) - inside * sizes.width


class _Bucketed:
    """A bucket takes gradients as they come, and is reduced when the next one has no room in it."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._inside = 0
        self._beside = 0.0  # a gradient that is larger than the bucket waits where it is
        self.held: float = 0
        self.bucket: float = 0

    def take(self, size: int) -> float:
        sizes = self._sizes
        moment = size * sizes.width
        if self._inside and self._inside + size > sizes.bucket:
            moment += self.finish()
        self._inside += size
        if size > sizes.bucket:
            self._beside = size * sizes.width
            self.held += self._beside
        return moment

    def finish(self) -> float:
        size, self._inside = self._inside, 0
        self.held, self._beside = self.held - self._beside, 0
        return self._reduce(size) if size else 0

    def _reduce(self, size: int) -> float:
        raise NotImplementedError


class _Partitioned(_Bucketed):
    """Stage 2: a rank keeps its part of what is reduced."""

    def __init__(self, sizes: Sizes, *, earlier: bool) -> None:
        super().__init__(sizes)
        self.bucket: float = 0
        apart = sizes.sums != sizes.width
        self._own = sizes.part * sizes.sums if apart else sizes.touched * sizes.width
        if sizes.offloaded:
            self._own = 0
        # Sums in another type are one buffer from the first micro step on; else each micro step makes one.
        self._apart, self._made = apart, earlier and apart
        self.held = self._own if earlier else 0.0
        self._done = 0

    def take(self, size: int) -> float:
        self.bucket = self._sizes.bucket * self._sizes.buckets * self._sizes.width
        return super().take(size)

    def _reduce(self, size: int) -> float:
        """A bucket of several ranks' gradients is sent as a copy; then the rank's own ones are copied out of it."""
        sizes, first = self._sizes, self._done
        self._done += size
        several = first // sizes.part != (self._done - 1) // sizes.part
        sent = size * sizes.width if several or self._apart else 0
        sent += size * sizes.sent if sizes.sent != sizes.width else 0
        # Into sums of another type, each gradient goes through a copy.
        sent += min(size, sizes.largest) * sizes.sums if self._apart else 0
        if sizes.offloaded:
            return max(sent, min(size, sizes.largest) * max(FP32, NORM))
        if self._made:
            return sent
        # The rank whose part is the last one makes it first, when most activations are left.
        self._made = True
        self.held += self._own
        return max(0, sent - self._own)


class _Scattered(_Bucketed):
    """Stage 3: the bucket is there all the time, and gradients are sent as a copy of it."""

    def _reduce(self, size: int) -> float:
        sizes = self._sizes
        sent = size * (sizes.width + (sizes.sent if sizes.sent != sizes.width else 0))
        return sent + (size // sizes.ranks * sizes.sums if sizes.sums != sizes.sent else 0)


def backward(sizes: Sizes, live: tuple[int, ...], *, last: bool) -> list[MemoryItem]:
    """Return what is there beside the states where the pass holds most.

    `live`: parameters that stage 3 has gathered, at each module.
    """
    moments = _moments(sizes, gradients_of(sizes, last=last), live)
    best = max(moments, key=sum)
    names = (
        "activations",
        "loss and logits",
        "gradients",
        "reduce bucket",
        "copies in reduction",
        "gathered parameters",
    )
    return [MemoryItem(name, size) for name, size in zip(names, best, strict=True) if size]


_Moment = tuple[float, float, float, float, float, float]


def _moments(sizes: Sizes, gradients: Gradients, live: tuple[int, ...]) -> Iterator[_Moment]:
    kept, pieces = sizes.activations.kept, sizes.activations.pieces
    gathered = iter(live)
    yield kept, sizes.activations.backward, gradients.held, gradients.bucket, 0, next(gathered, 0) * sizes.width
    computed, layer, waiting = 0.0, "", 0
    logits = sizes.activations.given
    for piece, now in _with(reversed(pieces), gathered):
        if piece.layer and piece.layer != layer:
            layer, computed = piece.layer, sizes.activations.again[piece.layer]
        there = kept + computed + piece.working
        if logits or piece.joins:
            # The gradient of what the head returned is gone when that of its weight is taken.
            new = piece.waits or piece.joins or sum(piece.trained[-1:])
            yield there, logits, gradients.held + waiting, gradients.bucket, new * sizes.width, now * sizes.width
        waiting += (piece.waits - piece.joins) * sizes.width
        for size in reversed(piece.trained):
            moment = gradients.take(size)
            yield there, 0, gradients.held + waiting, gradients.bucket, moment, now * sizes.width
        kept, computed, logits = kept - piece.kept, max(0.0, computed - piece.again), 0.0
    moment = gradients.finish()
    yield 0, 0, gradients.held, gradients.bucket, moment, 0


def _with(pieces: Iterable[Piece], live: Iterator[int]) -> Iterator[tuple[Piece, int]]:
    """Beside each piece the parameters gathered at it; a stand-in for a model's modules has no such number."""
    for piece in pieces:
        yield piece, next(live, 0)
