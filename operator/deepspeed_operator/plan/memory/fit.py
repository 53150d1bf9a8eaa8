"""Whether a GPU's memory is enough: said only where nothing that was merely assumed could make it otherwise."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from deepspeed_operator.dsconfig.offload import device_of
from deepspeed_operator.dsconfig.setup import ZERO, Setup
from deepspeed_operator.job.units import gib
from deepspeed_operator.plan.engine.wrappers import OTHER_OPTIMIZERS, Optimizer, optimizer_of
from deepspeed_operator.plan.memory.peaks import Memory, memory
from deepspeed_operator.plan.model.architecture import Attention, Guess, Model

# Peaks were predicted within this share of what was measured: docs/memory.md.
ERROR: Final = 0.1


class Fit(StrEnum):
    """Words of a condition's status."""

    YES = "True"
    NO = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """`open`: what could make it otherwise, where the answer is Unknown; `source`: who says the GPU's capacity.

    `unless_frozen`: all that could make it fit is that part of the model is frozen, of which nobody says a word.
    """

    fit: Fit
    memory: Memory
    capacity: int
    open: tuple[str, ...] = ()
    source: str = ""
    unless_frozen: bool = False

    def __str__(self) -> str:
        """One sentence for status: the phase, its largest term, the sum, and what is open."""
        peak = self.memory.peak
        items = ", ".join(f"{item.what} {gib(item.size)}" for item in peak.items)
        source = f" ({self.source})" if self.source else ""
        outside = self.memory.outside
        need = (
            f"{gib(self.memory.needed)} of a GPU's {gib(self.capacity)}{source}: most in the {peak.name}, where "
            f"{peak.largest.what} take most ({items}), and {gib(outside.size)} for {outside.what}"
        )
        match self.fit:
            case Fit.YES:
                return f"Training needs {need}."
            case Fit.NO:
                return f"Training needs {need}. It does not fit even under the most favourable assumptions."
            case Fit.UNKNOWN:
                return f"Training needs about {need}. Open: {'; '.join(self.open)}."


def fit_of(setup: Setup, model: Model, micro: int, accumulation: int, capacity: int) -> MemoryFit:
    """Compare the memory that a rank needs with its GPU's, under everything that assumed facts leave open."""
    case = _Case(setup, model, micro, accumulation, optimizer_of(setup))
    expected = case.memory()
    uncounted = tuple(_uncounted(setup)) + (("experts",) if model.experts else ())
    if uncounted:
        return MemoryFit(Fit.UNKNOWN, expected, capacity, tuple(f"not measured with {each}" for each in uncounted))
    facts = tuple(_open_facts(case))
    least, greatest = case, case
    for fact in facts:
        least, greatest = fact.low(least), fact.high(greatest)
    if _needed(least, 1 - ERROR) > capacity:
        return MemoryFit(Fit.NO, expected, capacity)
    if is_whole(model) and _needed(greatest, 1 + ERROR) <= capacity:
        return MemoryFit(Fit.YES, expected, capacity)
    as_meant = case
    for fact in facts:
        as_meant = as_meant if fact.name == _TRAINED else fact.low(as_meant)
    frozen = _needed(as_meant, 1 - ERROR) > capacity
    return MemoryFit(Fit.UNKNOWN, expected, capacity, tuple(_open(case, facts, capacity)), unless_frozen=frozen)


@dataclass(frozen=True, slots=True)
class _Case:
    setup: Setup
    model: Model
    micro: int
    accumulation: int
    optimizer: Optimizer

    def memory(self) -> Memory:
        return memory(self.setup, self.model, self.micro, self.accumulation, optimizer=self.optimizer)

    def used(self, **usage: Any) -> "_Case":
        return replace(self, model=replace(self.model, usage=replace(self.model.usage, **usage)))


_Change = Callable[[_Case], _Case]


@dataclass(frozen=True, slots=True)
class _OpenFact:
    """What was assumed, and the values of it that need least and most memory."""

    name: str
    low: _Change
    high: _Change


def _open_facts(case: _Case) -> Iterator[_OpenFact]:
    model = case.model
    if model.assumes("activationCheckpointing"):
        yield _OpenFact("activationCheckpointing", lambda case: case.used(checkpointing=True), _same)
    if model.assumes("attention"):
        flash, eager = Attention.FLASH, Attention.EAGER
        yield _OpenFact("attention", lambda case: case.used(attention=flash), lambda case: case.used(attention=eager))
    if model.assumes("sequenceLength"):
        longest = model.usage.longest
        yield _OpenFact("sequenceLength", lambda case: case.used(sequence=1), lambda case: case.used(sequence=longest))
    if model.assumes(_TRAINED):
        yield _OpenFact(_TRAINED, _frozen, _same)
    if model.freezes_some or model.freezes_between:
        yield _OpenFact("that frozen layers keep activations", _without_activations, _same)
    yield from map(_guessed, model.guesses)
    if case.optimizer.assumed:
        yield _OpenFact("the optimizer", lambda case: replace(case, optimizer=_STATELESS), _same)


_TRAINED: Final = "trainableParameters"


def _guessed(guess: Guess) -> _OpenFact:
    """Which end of it needs more depends on the rest: in fp32 fewer heads of keys keep more."""

    def ends(case: _Case) -> tuple[_Case, _Case]:
        shape = case.model.shape
        assert shape is not None, "what is guessed is of a shape"
        few, many = (replace(case.model, shape=replace(shape, **end)) for end in (guess.few, guess.many))
        return replace(case, model=few), replace(case, model=many)

    def needed(case: _Case) -> int:
        return case.memory().needed

    return _OpenFact(guess.name, lambda case: min(ends(case), key=needed), lambda case: max(ends(case), key=needed))


_STATELESS: Final = Optimizer("without states", 0)


def _same(case: _Case) -> _Case:
    return case


def _frozen(case: _Case) -> _Case:
    """Hardly anything is trained, such as the last layer."""
    modules = tuple(tuple(replace(tensor, trained=False) for tensor in module) for module in case.model.modules)
    return _without_activations(replace(case, model=replace(case.model, modules=modules, trainable=0)))


def _without_activations(case: _Case) -> _Case:
    """Autograd keeps nothing of the layers before the first trained one, and that may be the last."""
    return case.used(sequence=None)


def _needed(case: _Case, factor: float) -> float:
    found = case.memory()
    return found.size * factor + found.outside.size


def is_whole(model: Model) -> bool:
    """Whether everything that grows with the batch is counted."""
    return model.shape is not None and model.usage.sequence is not None and not model.trains_tower


def _open(case: _Case, facts: tuple[_OpenFact, ...], capacity: int) -> Iterator[str]:
    """Name each fact that could tip it alone; if none can, all together."""
    if case.model.trains_tower:
        yield "activations of the vision tower, which is trained"
    elif not is_whole(case.model):
        missing = "its layers and widths" if case.model.shape is None else "sequenceLength"
        yield f"activations, since {missing} are not declared in spec.model"
    lower, upper = _needed(case, 1 - ERROR), _needed(case, 1 + ERROR)
    if lower <= capacity < upper:
        yield f"the prediction's error of {ERROR:.0%}"
    fits = case.memory().needed <= capacity
    tipping = [
        fact.name
        for fact in facts
        if (_needed(fact.low(case), 1 - ERROR) <= capacity) != fits
        or (_needed(fact.high(case), 1 + ERROR) <= capacity) != fits
    ]
    yield from (f"{name}, which is assumed" for name in tipping or (fact.name for fact in facts))


def _uncounted(setup: Setup) -> Iterator[str]:
    """Features whose memory no formula here knows."""
    division = setup.division
    parts = {"tensor": division.tensor, "pipeline": division.pipeline, "sequence": division.sequence}
    yield from (f"{name} parallelism" for name, size in {**parts, "expert": division.expert}.items() if size > 1)
    yield from (name for name in ("zero_quantized_weights", "zero_quantized_gradients") if setup.on(ZERO, name))
    yield from (name for name in ("offload_optimizer", "offload_param") if device_of(setup, name) == "nvme")
    yield from (name for name in ("torch_autocast", "amp") if setup.section(name).get("enabled"))
    if setup.section("compile").get("deepcompile"):
        yield "deepcompile"
    if setup.value(ZERO, "zenflow") is not None:
        yield "zenflow"
    if setup.stage and not setup.on(ZERO, "contiguous_gradients"):
        yield "contiguous_gradients: false"
    if setup.section("optimizer").get("type") in OTHER_OPTIMIZERS:
        yield f"the optimizer {setup.section('optimizer')['type']}"
    yield from (f"{option} of bf16" for option in _SMALL if setup.on("bf16", option))


_SMALL: Final = ("bf16_master_weights_and_grads", "bf16_optimizer_states")
