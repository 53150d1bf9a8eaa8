"""Which parameters ZeRO stage 3 gathers in a micro step: its parameter coordinator, step by step.

Follows runtime/zero/partitioned_param_coordinator.py of DeepSpeed 0.15.4 and 0.19.8, whose rules are the same. A module
is fetched before it runs, with it some that come later; after it, it is released unless it is used again soon.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import accumulate, groupby
from typing import Final

from deepspeed_operator.dsconfig.setup import ZERO, Setup
from deepspeed_operator.plan.model.architecture import Model, Module, Tensor, first_trained, layer_of

# What one collective gathers.
Gather = tuple[Tensor, ...]
_NEVER = -1
# Step of a micro step → what is let go after it.
_Releases = dict[int, set[Tensor]]
# What visited() returns.
_Order = tuple[tuple[Module, ...], frozenset[int]]


class Again(Enum):
    """Whether the backward pass computes layers a second time, by torch.utils.checkpoint's use_reentrant or without."""

    NEVER = "never"
    REENTRANT = "reentrant"
    STOPPING = "not reentrant"


@dataclass(frozen=True, slots=True)
class Limits:
    """stage3_max_live_parameters, …_max_reuse_distance, …_prefetch_bucket_size; in elements."""

    live: int
    reuse: int
    prefetch: int


# The planner asks for many configurations, of which most differ in something else.
@lru_cache(maxsize=64)
def persistent(modules: tuple[Module, ...], threshold: int, model_threshold: int) -> frozenset[Tensor]:
    """Return the parameters that stay whole on every rank, gathered once after each optimizer step."""
    kept: dict[Tensor, None] = {}
    total = 0
    for tensor in dict.fromkeys(tensor for module in modules for tensor in module):
        if tensor.elements <= threshold and tensor.elements + total <= model_threshold:
            kept[tensor] = None
            total += tensor.elements
    return frozenset(kept)


@lru_cache(maxsize=64)
def gathered(
    modules: tuple[Module, ...],
    kept: frozenset[Tensor],
    limits: Limits,
    micro_steps: int,
    *,
    first_stays: bool,
    again: Again = Again.NEVER,
) -> tuple[Gather, ...]:
    """Return what the micro steps of an optimizer step gather, once the order of modules has been recorded.

    `first_stays`: after a backward pass, the first module's parameters stay until they are used again. Its input needs
    no gradient, so that older versions never see the end of its backward pass.
    """
    order = visited(modules, again, begin=first_trained(modules))
    releases, _ = _decided(order, kept, limits, accumulates=micro_steps > 1, first_stays=first_stays)
    gathers: list[Gather] = []
    left: set[Tensor] = set()
    for remaining in reversed(range(micro_steps)):
        before, decided = left, len(releases)
        step = _MicroStep(order, kept, limits, left | kept, releases)
        step.run(first_stays=first_stays)
        gathers += step.gathers
        left = step.available - kept
        if left == before and len(releases) == decided:
            gathers += remaining * step.gathers  # each begins as this one did
            break
    return tuple(gathers)


@lru_cache(maxsize=64)
def live(
    modules: tuple[Module, ...], kept: frozenset[Tensor], limits: Limits, *, accumulates: bool, first_stays: bool
) -> tuple[int, ...]:
    """Return how many parameters are whole, beside the kept ones, at each module of both passes of a micro step.

    Of the later micro steps, where a step `accumulates` several: what the one before left is there.
    """
    order = visited(modules)
    releases, left = _decided(order, kept, limits, accumulates=accumulates, first_stays=first_stays)
    there = left | kept if accumulates else kept
    step = _MicroStep(order, kept, limits, there, releases)
    step.run(first_stays=first_stays)
    return tuple(step.whole)


@lru_cache(maxsize=64)
def visited(modules: tuple[Module, ...], again: Again = Again.NEVER, *, begin: int = 0) -> _Order:
    """Return the modules in the order in which both passes of a micro step visit them, and after which none is let go.

    `begin`: the first one that the backward pass comes back to: before it, nothing is trained.
    A layer that is computed again is so by all of its modules, before the backward pass goes through it. What is not
    reentrant begins once its last module was fetched for that, and stops in this module, whose end it never sees:
    early_stop of torch.utils.checkpoint.
    """
    backward: list[Module] = []
    stays: set[int] = set()
    for layer, part in groupby(reversed(modules[begin:]), key=layer_of):
        last, *others = part
        forward = [*reversed(others), last]
        if not layer or again is Again.NEVER:
            backward += [last, *others]
        elif again is Again.REENTRANT:
            backward += [*forward, last, *others]
        else:
            stays.add(len(modules) + len(backward))
            backward += [last, *forward, *others]
    return (*modules, *backward), frozenset(stays)


def _decided(
    order: _Order, kept: frozenset[Tensor], limits: Limits, *, accumulates: bool, first_stays: bool
) -> tuple[_Releases, set[Tensor]]:
    """Return what is let go after each module, and what is left after the micro step in which this is decided, once.

    It is the training's second one: the first is recorded. Kept parameters are there from an optimizer step on, and not
    counted. Where a step `accumulates`, there was none yet: they are fetched as the others are, and count.
    """
    recorded = set(order[0][0]) if first_stays else set[Tensor]()
    releases: _Releases = {}
    step = _MicroStep(order, kept, limits, recorded if accumulates else kept, releases)
    step.run(first_stays=first_stays)
    return releases, step.available - kept


class _MicroStep:
    def __init__(
        self,
        visits: _Order,
        kept: frozenset[Tensor],
        limits: Limits,
        there: Set[Tensor],
        releases: _Releases,
    ) -> None:
        self.order, self.stays = order, _ = visits
        self.kept = kept
        self.limits = limits
        self.queue = deque((tensor, step) for step, module in enumerate(order) for tensor in module)
        self.fetched_for: dict[Tensor, int] = {}
        # The steps at which a tensor is used, and the parameters that are used before each step.
        self._uses: dict[Tensor, list[int]] = {}
        for tensor, step in self.queue:
            self._uses.setdefault(tensor, []).append(step)
        sizes = (sum(tensor.elements for tensor in module) for module in order)
        self._before = list(accumulate(sizes, initial=0))
        self.available = set(there)
        self.releases = releases
        self.live = 0  # what an earlier micro step left is not counted, and its release is
        self.whole: list[int] = []
        self._left = sum(tensor.elements for tensor in there - kept)
        self.gathers: list[Gather] = []

    def run(self, *, first_stays: bool) -> None:
        last = len(self.order) - 1
        for step, module in enumerate(self.order):
            self._gather(module)
            self._forget(module, step)
            if self.limits.prefetch > 0:
                self._prefetch()
            self.whole.append(self._left + self.live)
            if step not in self.stays and (step < last or not first_stays):
                self._release(module, step + 1)

    def _gather(self, tensors: Sequence[Tensor]) -> None:
        missing = tuple(tensor for tensor in tensors if tensor not in self.available)
        self.gathers += [missing] if missing else []
        self.available.update(missing)
        self.live += sum(tensor.elements for tensor in missing)

    def _forget(self, module: Module, step: int) -> None:
        """Take from the queue what is used now, unless an earlier prefetch has."""
        expected = sum(self.fetched_for.get(tensor, _NEVER) < step for tensor in module)
        for _ in range(min(expected, len(self.queue))):
            tensor, used_at = self.queue.popleft()
            self.fetched_for[tensor] = used_at

    def _prefetch(self) -> None:
        room = min(self.limits.live - self.live, self.limits.prefetch)
        chosen: dict[Tensor, None] = {}
        elements = 0
        while self.queue and elements < room:
            tensor, used_at = self.queue.popleft()
            self.fetched_for[tensor] = max(self.fetched_for.get(tensor, _NEVER), used_at)
            if tensor not in self.available and tensor not in chosen:
                chosen[tensor] = None
                elements += tensor.elements
        self._gather(list(chosen))

    def _release(self, module: Module, following: int) -> None:
        if following not in self.releases:
            self.releases[following] = self._unused_soon(module, following)
        released = self.releases[following] & self.available
        self.available -= released
        self.live -= sum(tensor.elements for tensor in released)

    def _unused_soon(self, module: Module, following: int) -> set[Tensor]:
        unused = {tensor for tensor in module if tensor not in self.kept}
        unused -= {tensor for tensor in module if self.fetched_for.get(tensor, _NEVER) > following}
        return {tensor for tensor in unused if not self._used_soon(tensor, following)}

    def _used_soon(self, tensor: Tensor, following: int) -> bool:
        uses = self._uses[tensor]
        position = bisect_left(uses, following)
        return position < len(uses) and self._before[uses[position]] - self._before[following] < self.limits.reuse


# The first version known to let go of the first module after a backward pass.
_RELEASES_FIRST_MODULE: Final = (0, 19, 8)


_LIMITS: Final = ("max_live_parameters", "max_reuse_distance", "prefetch_bucket_size")


_PERSISTENCE: Final = ("param_persistence_threshold", "model_persistence_threshold")


def simulated(
    setup: Setup, model: Model, accumulation: int, again: Again
) -> tuple[frozenset[Tensor], tuple[Gather, ...]]:
    """Return the parameters that stay whole, and what stage 3 gathers in a step of a model whose modules are known."""
    kept, stays = kept_whole(setup, model), first_stays(setup)
    return kept, gathered(model.modules, kept, limits_of(setup), accumulation, first_stays=stays, again=again)


def computed_again(model: Model) -> tuple[Again, ...]:
    """Return how the model's layers may be computed a second time: what gathers most comes first."""
    return (Again.REENTRANT, Again.STOPPING) if model.usage.checkpointing else (Again.NEVER,)


def kept_whole(setup: Setup, model: Model) -> frozenset[Tensor]:
    """Return the parameters that stage 3 leaves whole on every rank."""
    return persistent(model.modules, *(int(setup.value(ZERO, name)) for name in _PERSISTENCE))


def limits_of(setup: Setup) -> Limits:
    """Return what bounds the parameters that stage 3 has gathered."""
    return Limits(*(int(setup.value(ZERO, name)) for name in _LIMITS))


def first_stays(setup: Setup) -> bool:
    """Whether stage 3 keeps the first module's parameters after a backward pass."""
    return setup.schema.numbers < _RELEASES_FIRST_MODULE
