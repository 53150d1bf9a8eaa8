"""What DeepSpeed refuses, while it reads a configuration, because of several keys together."""

from collections.abc import Iterator
from typing import Any, Final

from deepspeed_operator.api.finding import Code
from deepspeed_operator.dsconfig.notes import Note, Path, error
from deepspeed_operator.dsconfig.setup import ZERO, Setup

_MASTER: Final = "master_weights_and_grads"
_LARGEST_POWER: Final = 1023


def combination_notes(setup: Setup) -> Iterator[Note]:
    yield from _precision(setup)
    yield from _scale(setup)
    yield from _master_weights(setup)
    yield from _sum(setup)
    if setup.on("aio", "use_gds") and setup.accelerator not in {None, "cuda"}:
        message = f"GPUDirect Storage is for NVIDIA GPUs, and the accelerator is {setup.accelerator}."
        yield error(("aio", "use_gds"), Code.UNSUPPORTED_ACCELERATOR, message, "Remove it.")


def _precision(setup: Setup) -> Iterator[Note]:
    if setup.fp16 and setup.bf16:
        message = "bfloat16 and fp16 modes cannot be simultaneously enabled."
        yield error(("fp16", "enabled"), Code.FP16_AND_BF16, message, "Disable one of fp16 and bf16.")


def _scale(setup: Setup) -> Iterator[Note]:
    power = setup.value("fp16", "initial_scale_power")
    if setup.fp16 and isinstance(power, int | float) and power > _LARGEST_POWER:
        message = f"2 to the power of {power} is beyond every floating-point number."
        yield error(("fp16", "initial_scale_power"), Code.LOSS_SCALE_POWER, message, "Write 16, which is the default.")


def _master_weights(setup: Setup) -> Iterator[Note]:
    rules = setup.schema.rules
    key = f"fp16_{_MASTER}"
    if setup.on("fp16", key) and (setup.fp16 or not rules["fp16_master_when_off"]):
        yield from _at_stages(setup, ("fp16", key), rules[key])
    for key in (f"bf16_{_MASTER}", "bf16_optimizer_states"):
        if setup.on("bf16", key):
            yield from _at_stages(setup, ("bf16", key), rules[key])
    alone = setup.on("bf16", "bf16_optimizer_states") and not setup.on("bf16", f"bf16_{_MASTER}")
    if alone and not rules["bf16_states_alone"]:
        message = f"needs bf16_{_MASTER}."
        yield error(
            ("bf16", "bf16_optimizer_states"), Code.BF16_STATES_ALONE, message, f"Write bf16_{_MASTER}: true, too."
        )


def _at_stages(setup: Setup, path: Path, stages: list[int]) -> Iterator[Note]:
    if setup.stage not in stages:
        message = f"works at ZeRO stage {' or '.join(map(str, stages))} only, and the stage is {setup.stage}."
        yield error(path, Code.ZERO_STAGE, message, f"Remove it, or write zero_optimization.stage: {stages[0]}.")


def _sum(setup: Setup) -> Iterator[Note]:
    rules = setup.schema.rules
    operation: Any = setup.config.get("gradient_allreduce_op")
    if not isinstance(operation, str) or operation.lower() != "sum":
        return
    here: Path = ("gradient_allreduce_op",)
    if setup.stage not in rules["sum"]:
        message = f'"sum" does not work at ZeRO stage {setup.stage}.'
        yield error(here, Code.ZERO_STAGE, message, 'Write "mean", or use a lower stage.')
    if setup.zero.get("zenflow") is not None and not rules["sum_with_zenflow"]:
        yield error(
            here, Code.NOT_WITH_ZENFLOW, '"sum" does not work with ZenFlow.', f'Write "mean", or remove {ZERO}.zenflow.'
        )
    if setup.on("compile", "deepcompile") and not rules["sum_with_deepcompile"]:
        message = '"sum" does not work with DeepCompile.'
        yield error(here, Code.NOT_WITH_DEEPCOMPILE, message, 'Write "mean", or compile.deepcompile: false.')
