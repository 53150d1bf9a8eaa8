"""Which class of DeepSpeed wraps the optimizer: it decides what is copied, divided and kept.

Follows `_do_optimizer_sanity_check` and `_configure_fp16_optimizer` of runtime/engine.py, 0.15.4 to 0.19.8.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.offload import uses_cpu_optimizer
from deepspeed_operator.dsconfig.setup import Setup, ZeroStage
from deepspeed_operator.plan.engine.partitioning import (
    model_bytes,
    replaced_by_bf16_optimizer,
    summed_by_bf16_optimizer,
)

# Optimizers that reduce by themselves, or more than their gradients.
OTHER_OPTIMIZERS: Final = ("OneBitAdam", "ZeroOneAdam", "OneBitLamb", "Muon")
_FREES_GRADIENTS: Final = (0, 16, 0)


class Wrapper(StrEnum):
    """Class names, as DeepSpeed logs them."""

    NONE = "none"
    FP16 = "FP16_Optimizer"
    UNFUSED = "FP16_UnfusedOptimizer"
    BF16 = "BF16_Optimizer"
    ZERO = "DeepSpeedZeroOptimizer"
    ZERO_3 = "DeepSpeedZeroOptimizer_Stage3"


@dataclass(frozen=True, slots=True)
class Optimizer:
    """`states`: bytes of a parameter that it keeps in fp32; `copies`: more that its step needs; `fused`: FusedAdam."""

    name: str
    states: int
    copies: float = 0
    fused: bool = False
    assumed: bool = False


_FUSED: Final = Optimizer("FusedAdam", 8, fused=True)
# torch's own keep one temporary copy of all second moments where they handle all tensors at once.
_TORCH_ADAM: Final = Optimizer("torch.optim.AdamW", 8, copies=4)
_KNOWN: Final = {
    "lamb": Optimizer("FusedLamb", 8),
    "lion": Optimizer("FusedLion", 4),
    "adagrad": Optimizer("torch.optim.Adagrad", 4, copies=4),
    "sgd": Optimizer("torch.optim.SGD", 0),
}


# DeepSpeed's own for the host, which take the place of its others where the optimizer is offloaded.
_ON_HOST: Final = {
    "adam": Optimizer("DeepSpeedCPUAdam", 8),
    "adamw": Optimizer("DeepSpeedCPUAdam", 8),
    "adagrad": Optimizer("DeepSpeedCPUAdagrad", 4),
    "lion": Optimizer("DeepSpeedCPULion", 4),
}


def optimizer_of(setup: Setup) -> Optimizer:
    """Return the optimizer of the configuration; without one it is the script's, assumed to be torch's AdamW."""
    section = setup.section("optimizer")
    name: Any = section.get("type")
    if not isinstance(name, str):
        return Optimizer(_TORCH_ADAM.name, _TORCH_ADAM.states, _TORCH_ADAM.copies, assumed=True)
    is_adam = name.lower() in {"adam", "adamw"}
    if is_adam and object_at(section.get("params")).get("torch_adam"):
        return _TORCH_ADAM
    if uses_cpu_optimizer(setup) and name.lower() in _ON_HOST:
        return _ON_HOST[name.lower()]
    if is_adam:
        return _FUSED
    return _KNOWN.get(name.lower(), Optimizer(name, _TORCH_ADAM.states, _TORCH_ADAM.copies, assumed=True))


def wrapper_of(setup: Setup, optimizer: Optimizer) -> Wrapper:
    """Return the wrapper for a precision, a stage and an optimizer."""
    if setup.stage == ZeroStage.PARAMETERS:
        return Wrapper.ZERO_3
    if setup.stage > ZeroStage.DISABLED:
        return Wrapper.BF16 if summed_by_bf16_optimizer(setup) else Wrapper.ZERO
    if model_bytes(setup) == 4:
        return Wrapper.NONE
    if replaced_by_bf16_optimizer(setup) or (setup.bf16 and setup.division.pipeline > 1):
        return Wrapper.BF16
    return Wrapper.FP16 if optimizer.fused else Wrapper.UNFUSED


def keeps_gradients(setup: Setup, wrapper: Wrapper) -> bool:
    """Whether gradients stay after a step, until the next backward pass begins."""
    return wrapper is Wrapper.BF16 and setup.schema.numbers < _FREES_GRADIENTS
