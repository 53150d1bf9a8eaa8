"""What a GPU holds between two steps, at least: parameters, optimizer states and buffers.

Activations, temporary copies and what the allocator cannot reuse come on top: a configuration that is too large here is
too large, one that is not may be.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.plan.communication import device_of, model_bytes, offloads, replaced_by_bf16_optimizer
from deepspeed_operator.plan.model import Model

UNCOUNTED = ("gradients", "activations", "reduction buffers", "temporary copies", "fragmentation", "CUDA and NCCL")
_MASTER = 4
# Of the optimizers that keep two moments of each parameter in fp32, as all Adams do.
_MOMENTS = 8
_SMALLER_STATES = ("bf16_master_weights_and_grads", "bf16_optimizer_states")
_ADAMS = ("Adam", "AdamW", "FusedAdam")


class Fit(StrEnum):
    """Whether a GPU's memory is enough. It is never said to be, while a term of the sum is not known."""

    NO = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Item:
    """`trained`: needed for parameters that are trained, which a model's configuration does not tell."""

    what: str
    size: int
    trained: bool = True


@dataclass(frozen=True, slots=True)
class Memory:
    items: tuple[Item, ...]

    @property
    def size(self) -> int:
        """If all parameters are trained."""
        return sum(item.size for item in self.items)

    def fit(self, capacity: int) -> Fit:
        """Compare with what is needed whichever parameters are trained."""
        return Fit.NO if sum(item.size for item in self.items if not item.trained) > capacity else Fit.UNKNOWN


def memory(setup: Setup, model: Model) -> Memory:
    """Return what a GPU holds at least."""
    return Memory(tuple(_items(setup, model)))


def _items(setup: Setup, model: Model) -> Iterator[Item]:
    ranks = setup.division.shards or setup.world
    division = setup.division
    here = model.parameters // (division.tensor * division.pipeline * division.expert)
    mixed = model_bytes(setup) < _MASTER
    states = here // ranks if setup.stage > 0 or replaced_by_bf16_optimizer(setup) else here
    if setup.stage < 3:
        yield Item("parameters", here * model_bytes(setup), trained=False)
    elif device_of(setup, "offload_param") in (None, "none"):
        yield Item("parameters, divided", here // ranks * model_bytes(setup), trained=False)
    # States in bf16, or on the host, are left out: what is said stays a lower bound.
    if offloads(setup) or any(setup.on("bf16", option) for option in _SMALLER_STATES):
        return
    divided = "" if states == here else ", divided"
    if mixed:
        yield Item(f"parameters in fp32{divided}", states * _MASTER)
    if setup.section("optimizer").get("type") in _ADAMS:
        yield Item(f"moments{divided}", states * _MOMENTS)
