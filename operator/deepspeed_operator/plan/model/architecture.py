"""What the planner knows of a model, and from where."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Final

from deepspeed_operator.job.provenance import Fact, Source
from deepspeed_operator.plan.model.families import LLAMA
from deepspeed_operator.plan.model.parts import Family, Part, Width


@dataclass(frozen=True, slots=True)
class Tensor:
    """A parameter; a tied one has the same name wherever it is used."""

    name: str
    elements: int
    trained: bool = True


Module = tuple[Tensor, ...]


# How the names of a tower's parameters begin.
TOWERS: Final = ("visual.", "vision_tower.", "multi_modal_projector.")


def is_of_tower(tensor: Tensor) -> bool:
    """Whether a parameter is of what sees images, and of no layer."""
    return tensor.name.startswith(TOWERS)


def is_expert(tensor: Tensor) -> bool:
    """Whether a parameter holds the experts of a layer."""
    return ".experts." in tensor.name


def layer_of(module: Module) -> str:
    """Return the number of the layer that a module is part of, empty where it is outside of all."""
    place, _, rest = module[0].name.partition(".")
    return rest.partition(".")[0] if place == "layers" else ""


@dataclass(frozen=True, slots=True)
class Dropout:
    """Where numbers are dropped in training: a mask of a byte for each is kept."""

    attention: bool = False
    residual: bool = False
    embedding: bool = False


@dataclass(frozen=True, slots=True)
class Mixture:
    """`count` experts in each of `layers`, by their numbers; a token goes to `chosen` of them."""

    count: int
    chosen: int
    layers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Window:
    """The numbers of `layers` in which a token attends to the last `tokens` only."""

    tokens: int
    layers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Shape:
    """What activations depend on; `queries` and `keys` are widths of these projections, over all heads.

    `others`: widths that only some families have. `capped`, `scores_capped`: whether logits, or the scores of eager
    attention, go through a tanh.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    vocabulary: int
    queries: int
    keys: int
    family: Family = LLAMA
    activation: str = "silu"
    dropout: Dropout = Dropout()
    others: tuple[tuple[Width, int], ...] = ()
    mixture: Mixture | None = None
    window: Window | None = None
    capped: bool = False
    scores_capped: bool = False

    def width(self, name: Width) -> int:
        match name:
            case "head":
                return self.queries // self.heads
            case "one":
                return 1
            case "hidden" | "intermediate" | "queries" | "keys" | "heads":
                return getattr(self, name)
            case _:
                return dict(self.others)[name]

    def kind(self, layer: int) -> tuple[bool, bool]:
        """Whether the layer of this number has experts, and whether a window: other layers are alike."""
        mixed = self.mixture is not None and layer in self.mixture.layers
        return mixed, self.window is not None and layer in self.window.layers

    def parts(self, layer: int) -> tuple[Part, ...]:
        """What the layer of this number is made of."""
        return self.family.mixed_layer if self.kind(layer)[0] else self.family.layer


@dataclass(frozen=True, slots=True)
class Guess:
    """A fact of a shape that nobody told: what else of it may be, one end and the other."""

    name: str
    few: Mapping[str, int]
    many: Mapping[str, int]


class Attention(StrEnum):
    """How attention is computed. SDPA and flash kernels keep no scores; for SDPA a window is a mask, which is kept."""

    SDPA = "SDPA"
    FLASH = "Flash"
    EAGER = "Eager"


@dataclass(frozen=True, slots=True)
class Quantized:
    """Frozen `parameters` that bitsandbytes stores in `width` bytes each, and makes whole for each product."""

    name: str
    width: float
    parameters: int


@dataclass(frozen=True, slots=True)
class Usage:
    """How a script trains the model: `sequence` tokens a sample, and never more than `longest`.

    `frozen_width`: bytes of a frozen parameter, None: as those that are trained. `adapted`: modules with adapters.
    """

    sequence: int | None = None
    longest: int | None = None
    attention: Attention = Attention.SDPA
    checkpointing: bool = False
    frozen_width: float | None = None
    adapted: tuple[str, ...] = ()
    quantized: Quantized | None = None


@dataclass(frozen=True, slots=True)
class Experts:
    """`count` experts with `parameters` each in each of `layers` layers; a token goes to `chosen` of them.

    `capacity`: tokens for which they have room, in units of those that they would share evenly.
    """

    count: int
    layers: int
    parameters: int
    chosen: int = 1
    capacity: float = 1.0

    @property
    def total(self) -> int:
        return self.count * self.layers * self.parameters

    @property
    def passed(self) -> float:
        """Parameters that a token goes through, room that is left empty counted: it is computed, too."""
        return self.layers * self.parameters * self.chosen * self.capacity

    def room(self, tokens: int) -> int:
        """Tokens that all experts of a layer take of `tokens`: _capacity of moe/sharded_moe.py."""
        return self.count * max(ceil(tokens / self.count * self.capacity * self.chosen), _LEAST_ROOM)


# min_capacity of an expert, where the script says no other.
_LEAST_ROOM: Final = 4


@dataclass(frozen=True, slots=True)
class Model:
    """`modules` are those that own parameters, as a forward pass calls them; empty where only a number is known."""

    parameters: int
    modules: tuple[Module, ...]
    shape: Shape | None
    facts: tuple[Fact, ...]
    trainable: int | None = None
    usage: Usage = Usage()
    experts: Experts | None = None
    guesses: tuple[Guess, ...] = ()

    @property
    def passed(self) -> float:
        """Parameters that a token of text goes through."""
        tower = sum(each.elements for module in self.modules for each in module if is_of_tower(each))
        if self.shape is not None and self.shape.mixture is not None:
            mixture = self.shape.mixture
            experts = sum(each.elements for module in self.modules for each in module if is_expert(each))
            return self.parameters - tower - (1 - mixture.chosen / mixture.count) * experts
        if tower:
            return self.parameters - tower
        return self.parameters - self.experts.total + self.experts.passed if self.experts else self.parameters

    @property
    def trained(self) -> int:
        """Parameters that have gradients: all, where nothing else is said."""
        if self.trainable is not None:
            return self.trainable
        frozen = {tensor.name: tensor.elements for module in self.modules for tensor in module if not tensor.trained}
        return self.parameters - sum(frozen.values())

    @property
    def freezes_some(self) -> bool:
        """Whether part of it is frozen, and which part is not known."""
        return self.trainable is not None and self.trainable < self.parameters and not self.usage.adapted

    @property
    def freezes_between(self) -> bool:
        """Whether modules are frozen that autograd goes back through, of which less is kept than is counted."""
        if self.usage.adapted or self.trainable is not None:
            return False
        behind = self.modules[first_trained(self.modules) :]
        return any(not (tensor.trained or is_of_tower(tensor)) for module in behind for tensor in module)

    @property
    def trains_tower(self) -> bool:
        """Whether something is trained of what sees images: what that keeps is not counted."""
        return any(tensor.trained and is_of_tower(tensor) for module in self.modules for tensor in module)

    def assumes(self, name: str) -> bool:
        """Whether this fact is nobody's word."""
        return any(fact.name == name and fact.source is Source.ASSUMED for fact in self.facts)


def first_trained(modules: Sequence[Module]) -> int:
    """Return the place of the first module of which something is trained, 0 where none is."""
    trained = (index for index, module in enumerate(modules) if any(each.trained for each in module))
    return next(trained, 0)


class UnknownModelError(ValueError):
    """A model whose parameters cannot be told from its configuration."""


def declared(parameters: int) -> Model:
    """Return a model of which only the size is known."""
    return Model(parameters, (), None, (Fact("parameters", parameters, Source.DECLARED),))


def total(modules: Iterable[Module]) -> int:
    """Count parameters; a tied one counts once."""
    return sum({tensor.name: tensor.elements for module in modules for tensor in module}.values())
