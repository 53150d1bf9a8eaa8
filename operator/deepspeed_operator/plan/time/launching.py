"""What the host does for a step: its Python starts every kernel, DeepSpeed's looks after each tensor besides.

The GPU works behind it, so that a step is as long as the longer of the two. Less of the GPU's work is behind it under a
framework: transformers' Trainer reads each loss (logging_nan_inf_filter), waits for the GPU by that, and what it does
until the next micro step is not overlapped at all.
"""

from dataclasses import dataclass, replace
from typing import Final

from deepspeed_operator.dsconfig.setup import Setup, ZeroStage
from deepspeed_operator.plan.model.architecture import Model, Shape
from deepspeed_operator.plan.model.parts import GroupedExperts, Norm, Norming, linears_of

# Kernels of both passes, as torch's profiler counted them in one of Mistral, Qwen 3 and GPT-2 with PyTorch 2.11 and
# transformers 5.17 (2,880, 5,048 and 1,698; so counted 2,882, 5,012 and 1,896): of a norm made of single operations, of
# PyTorch's own, of a linear with its gradients, and of all else in a layer (rotation, attention, activation, sums).
_NORM: Final = {Norming.RMS: 24, Norming.EXACT: 24, Norming.LAYER: 4}
_LINEAR: Final = 4
_LAYER: Final = 55
# Of a router and all experts of a layer together, whose products are one each: sorted, gathered, weighed, summed.
_EXPERTS: Final = 90
# Beside an adapted linear: two more, a dropout, a scale and a sum.
_ADAPTED: Final = 12
# The forward pass is started twice then: a third of all.
_CHECKPOINTED: Final = 4 / 3


@dataclass(frozen=True, slots=True)
class Host:
    """Seconds: of each `kernel` that a micro step starts, of each `gradient` that stages 1 and 2 take from it, of each
    trained `tensor` in an optimizer step, and of each module `between` two micro steps of a framework.
    """

    kernel: float = 0.0
    gradient: float = 0.0
    tensor: float = 0.0
    between: float = 0.0

    def times(self, factor: float) -> "Host":
        """Return those of a host that takes so many times as long."""
        seconds = (self.kernel, self.gradient, self.tensor, self.between)
        return Host(*(each * factor for each in seconds))

    @property
    def of_a_loop(self) -> "Host":
        """The same without a framework."""
        return replace(self, between=0.0)

    def starting(self, setup: Setup, model: Model, accumulation: int) -> float:
        """Seconds of a step in which the host starts what the GPU does; stage 3's own work comes besides."""
        trained = _trained_tensors(model)
        gradients = trained if setup.stage in (ZeroStage.OPTIMIZER_STATES, ZeroStage.GRADIENTS) else 0
        micro_step = kernels(model) * self.kernel + gradients * self.gradient
        return (accumulation * micro_step + trained * self.tensor) / setup.division.pipeline

    def framework(self, setup: Setup, model: Model) -> float:
        """Seconds of a framework after each micro step, in which the GPU waits."""
        return len(model.modules) * self.between / setup.division.pipeline


def kernels(model: Model) -> float:
    """Return how many kernels a micro step's two passes start; none of a model whose layers are not known."""
    shape = model.shape
    if shape is None:
        return 0.0
    started = sum(_kernels_of(shape, number, model.usage.adapted) for number in range(shape.layers))
    return started * (_CHECKPOINTED if model.usage.checkpointing else 1)


def _kernels_of(shape: Shape, number: int, targets: tuple[str, ...]) -> int:
    parts = shape.parts(number)
    linears = linears_of(parts)
    norms = sum(isinstance(part, Norm) for part in parts)
    adapted = sum(linear.adapted_by(targets) for linear in linears)
    experts = sum(isinstance(part, GroupedExperts) for part in parts)
    others = adapted * _ADAPTED + experts * _EXPERTS + _LAYER
    return norms * _NORM[shape.family.norming] + len(linears) * _LINEAR + others


def _trained_tensors(model: Model) -> int:
    return len({tensor.name for module in model.modules for tensor in module if tensor.trained})


# Python of PyTorch 2.11, transformers 5.17 and DeepSpeed 0.19.8, as two ranks took it on the host of two H200s: narrow
# models under the Trainer and in a loop (bench/gpu/results/trainer/host.jsonl), and a twentieth more, by all steps
# under the Trainer on three machines. The same host takes half as long again at other times.
USUAL: Final = Host(kernel=23e-6, gradient=80e-6, tensor=140e-6, between=47e-6)
