"""How long a step takes: its parts one after the other, except that stage 3 sends while it computes.

How much of that overlaps is known of a calibration only; without one, nothing is assumed to. With overlap_comm at
stages 1 and 2, and with activation checkpointing at stage 3, whose layers are gathered more or less often by how they
are computed again, the time is an upper bound; how much may be saved is told beside it.

    stages 0 to 2: computing + work + communication + update
    stage 3: the longer one of computing + work and communication, + update

Work is what ZeRO does beside that: copies into buckets at each reduction. Behind the host's Python all of it goes on,
at stage 3 a share of the computing: where Python takes longer, the rest of it is a part of the step, too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from deepspeed_operator.dsconfig.offload import device_of
from deepspeed_operator.dsconfig.setup import ZERO, Setup, ZeroStage
from deepspeed_operator.job.precision import Precision, precision_of
from deepspeed_operator.plan.engine.gathers import computed_again, simulated, visited
from deepspeed_operator.plan.engine.partitioning import (
    model_bytes,
    offloads,
    replaced_by_bf16_optimizer,
    trained_here,
)
from deepspeed_operator.plan.model.architecture import Model, first_trained
from deepspeed_operator.plan.time.costs import Costs, Work, work_of
from deepspeed_operator.plan.traffic.collectives import ALL_GATHER, REDUCE_SCATTER, Term
from deepspeed_operator.plan.traffic.communication import Traffic

# A forward pass is done twice then, and is half as long as a backward pass.
_CHECKPOINTED: Final = 4 / 3
# Seconds of a parameter at least, where the host's CPUs update it: its states through a memory of 100 GB/s a rank,
# its gradient and its new value over PCIe.
HOST_UPDATE: Final = 28 / 100e9 + 4 / 25e9


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds; `communication`: of those in which nothing else is done; `host`: in which the GPU waits for Python. With
    `unproven`, a lower bound.

    `hidden`: seconds of the communication that may cost no time, as `hidden_by` says; an upper bound then.
    """

    compute: float
    work: float
    update: float
    communication: float
    unproven: tuple[str, ...] = ()
    hidden: float = 0.0
    hidden_by: str = "overlap_comm may hide"
    host: float = 0.0

    @property
    def seconds(self) -> float:
        return self.compute + self.work + self.update + self.communication + self.host

    @property
    def least(self) -> float:
        """The seconds without all that may be hidden."""
        return self.seconds - self.hidden

    @property
    def sign(self) -> str:
        """How the step that is run compares with the seconds; empty where they are what is predicted."""
        return "≈" if self.unproven and self.hidden else "≥" if self.unproven else "≤" if self.hidden else ""

    @property
    def caveat(self) -> str:
        """What keeps the seconds from being a prediction; empty where nothing does."""
        without = f"without {', '.join(self.unproven)}" if self.unproven else ""
        hidden = f"{self.hidden_by} up to {self.hidden:.3g} s of the network" if self.hidden else ""
        if without and hidden:
            return f"{without}; {hidden}"
        return f"a lower bound, {without}" if without else f"an upper bound: {hidden}" if hidden else ""

    @property
    def share(self) -> float:
        """The network's part of the step."""
        return self.communication / self.seconds if self.seconds else 0.0


def step_time(
    setup: Setup, model: Model, traffic: Traffic, costs: Costs, *, micro: int, accumulation: int
) -> StepTime | None:
    """Return the time of a step, None where a link that it needs is not known."""
    during = _sent(costs, [term for term in traffic.terms if not term.after])
    after = _sent(costs, [term for term in traffic.terms if term.after])
    if during is None or after is None:
        return None
    division = setup.division
    # Ranks that share a sample or a model share its computing.
    ranks = division.tensor * division.pipeline * division.sequence
    passes = _CHECKPOINTED if model.usage.checkpointing else 1
    compute = accumulation * (costs.launch + micro * costs.sample_in(precision_of(setup))) * passes / ranks
    compute += _dequantizing(setup, model, costs) * accumulation / ranks
    work = copying(setup, model, costs, accumulation) + _zero_plus_plus(setup, traffic, costs)
    if work < 0:  # a sweep's single calls took longer than the same calls in a step: the network's time is less
        during, work = max(0.0, during + work), 0.0
    update = (HOST_UPDATE if offloads(setup) else costs.update[work_of(setup)]) * updated(setup, model)
    framework = accumulation * costs.host.framework(setup, model)
    if work_of(setup) is Work.GATHERED:
        host = max(0.0, visiting(setup, model, costs, accumulation) - costs.hides * compute)
        if overlaps(setup) and costs.waits:
            waited = min(during, visits(setup, model, accumulation)[0] * costs.gather)
            during = waited + max(0.0, during * costs.gathering - compute - work - host)
            host -= waited
    else:
        starting = costs.host.starting(setup, model, accumulation)
        if framework:  # neither has anything to do at first where it waits for the other at each micro step's end
            starting += (1 - costs.hides) * compute
        host = max(0.0, starting - compute - work - during - update - after)
    return StepTime(
        compute=compute,
        work=work,
        update=update,
        communication=during + after,
        host=host + framework,
        unproven=tuple(
            name for name in dict.fromkeys((*traffic.unproven, *_unproven(setup, model, costs))) if name not in BY_PAPER
        ),
        hidden=_hidden(setup, during, compute * reductions(setup, accumulation) / accumulation),
    )


# Of a step, what is shown: less is no second bound.
_TELLS: Final = 0.005


def with_bound(most: StepTime, least: StepTime) -> StepTime:
    """Return the time with what activation checkpointing that is not reentrant would save of it."""
    saved = most.seconds - least.seconds
    return replace(most, hidden=saved, hidden_by=_STOPPING) if saved > _TELLS * most.seconds else most


_STOPPING: Final = "activation checkpointing with use_reentrant=False may save"


def _sent(costs: Costs, terms: Sequence[Term]) -> float | None:
    seconds = [costs.links.seconds(term) for term in terms]
    known = [each for each in seconds if each is not None]
    return sum(known) if len(known) == len(seconds) else None


def overlaps(setup: Setup) -> bool:
    """Whether the passes go on while parameters and gradients are on their way: stage 3's default."""
    return setup.stage == ZeroStage.PARAMETERS and setup.value(ZERO, "overlap_comm") is not False


def _hidden(setup: Setup, during: float, computing: float) -> float:
    """Seconds of reductions that may be hidden behind the micro steps in which they are made."""
    return min(during, computing) if setup.stage in (1, 2) and setup.on(ZERO, "overlap_comm") else 0.0


def updated(setup: Setup, model: Model) -> float:
    """Parameters that one rank's optimizer updates."""
    if setup.stage or replaced_by_bf16_optimizer(setup):
        return model.trained / (setup.division.tensor * setup.division.pipeline * setup.data_ranks)
    return trained_here(setup, model)


def reductions(setup: Setup, accumulation: int) -> int:
    """How often a step reduces its gradients."""
    return accumulation if setup.stage >= ZeroStage.GRADIENTS else 1


def visits(setup: Setup, model: Model, accumulation: int) -> tuple[int, int]:
    """Return how many parameter tensors stage 3 gathers in a step, and how many modules it visits.

    It visits those without parameters, too: parameter_offload.py hooks every module.
    """
    if not model.modules:
        return 0, 0
    again = computed_again(model)[0]
    _, gathers = simulated(setup, model, accumulation, again)
    order, _ = visited(model.modules, again, begin=first_trained(model.modules))
    return sum(len(gather) for gather in gathers), round(len(order) * _called(model)) * accumulation


# Of a causal language model, outside its layers: itself, what is below its head, and rotation or a dropout.
_OUTSIDE: Final = 3


def _called(model: Model) -> float:
    """Modules that a pass calls, for each one that has parameters."""
    if model.shape is None:
        return 1.0
    return 1 + (model.shape.layers * model.shape.family.without_parameters + _OUTSIDE) / len(model.modules)


def copying(setup: Setup, model: Model, costs: Costs, accumulation: int) -> float:
    """Seconds of copies into buckets."""
    if setup.data_ranks == 1 and setup.stage < ZeroStage.PARAMETERS:
        return 0.0
    return costs.reduction[work_of(setup)] * trained_here(setup, model) * reductions(setup, accumulation)


def _dequantizing(setup: Setup, model: Model, costs: Costs) -> float:
    """Seconds of a micro step in which frozen parameters are made whole, each time before they are multiplied.

    At least: as if bitsandbytes' kernels moved bytes at the data sheet's rate.
    """
    stored = model.usage.quantized
    if stored is None or costs.byte is None:
        return 0.0
    # In the forward and the backward pass, and where a layer is computed again, once more.
    passes = 3 if model.usage.checkpointing else 2
    return passes * stored.parameters * (stored.width + model_bytes(setup)) * costs.byte


def _zero_plus_plus(setup: Setup, traffic: Traffic, costs: Costs) -> float:
    """Seconds of a step in which what is sent is made small and whole again, at the memory's rate."""
    moved = 0.0
    for name, collective, width in _SMALLER:
        if setup.on(ZERO, name):
            elements = sum(term.payload for term in traffic.terms if term.collective == collective) / width
            moved += elements * (width + model_bytes(setup))
    return moved * (costs.byte or 0.0)


# ZeRO++'s keys, the collective that carries less by them, and bytes of a number in it (arXiv 2306.10209).
_SMALLER: Final = (
    ("zero_quantized_weights", ALL_GATHER, 1),
    ("zero_quantized_gradients", REDUCE_SCATTER, 0.5),
)
# What was never counted, of which the paper tells the volumes.
BY_PAPER: Final = tuple(name for name, _, _ in _SMALLER)


def visiting(setup: Setup, model: Model, costs: Costs, accumulation: int) -> float:
    """Seconds of stage 3's Python for what it gathers and visits, and of the host for the kernels between."""
    tensors, modules = visits(setup, model, accumulation)
    return tensors * costs.gather + modules * costs.module + costs.host.starting(setup, model, accumulation)


def _unproven(setup: Setup, model: Model, costs: Costs) -> Iterator[str]:
    if precision_of(setup) is Precision.FP32 and costs.measured_in not in (None, Precision.FP32):
        yield f"fp32, since {costs.measured_in} was measured"
    if model.usage.quantized is not None and costs.byte is None:
        yield "dequantization"
    if model.experts is not None:
        yield "the gate's work and experts that wait for others"
    for name in ("offload_optimizer", "offload_param"):
        if device_of(setup, name) != "none":
            yield f"{name}'s work on the host"
    if replaced_by_bf16_optimizer(setup) or (setup.stage == ZeroStage.OPTIMIZER_STATES and setup.accumulates_in_fp32):
        yield "BF16_Optimizer's step"
