"""What no count of DeepSpeed's own calls confirms: with it, a total is a lower bound."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deepspeed_operator.dsconfig.batch import AUTO
from deepspeed_operator.dsconfig.offload import device_of
from deepspeed_operator.dsconfig.setup import ZERO, Setup, ZeroStage
from deepspeed_operator.plan.engine.wrappers import OTHER_OPTIMIZERS
from deepspeed_operator.plan.model.architecture import Model

PROVEN_VERSIONS: Final = ("0.15.4", "0.19.8")
# Limits that the Hugging Face Trainer writes for "auto".
_FILLED: Final = ("stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
_DEFAULTS: Final[Mapping[str, Any]] = {
    "zero_quantized_weights": False,
    "zero_quantized_gradients": False,
    "zero_quantized_nontrainable_weights": False,
    "use_all_reduce_for_fetch_params": False,
    "module_granularity_threshold": 0,
}
# Offload to the host was counted, and moves nothing between ranks.
_COUNTED_DEVICES: Final = ("none", "cpu")


def unproven(setup: Setup, model: Model) -> Iterator[str]:
    """Yield the names of features whose traffic was never counted."""
    if setup.schema.version not in PROVEN_VERSIONS:
        yield f"DeepSpeed {setup.schema.version} (counted: {', '.join(PROVEN_VERSIONS)})"
    if setup.stage == ZeroStage.PARAMETERS and not model.modules:
        yield "stage 3 of a model whose modules are not known"
    if setup.stage == ZeroStage.PARAMETERS and model.usage.quantized is not None:
        yield "quantized parameters at stage 3"
    division = setup.division
    sizes = {"tensor": division.tensor, "pipeline": division.pipeline, "sequence": division.sequence}
    yield from (f"{name} parallelism" for name, size in sizes.items() if size > 1)
    if division.expert > 1:
        yield from _of_experts(setup, model)
    yield from _options(setup)


def _options(setup: Setup) -> Iterator[str]:
    yield from (name for name, default in _DEFAULTS.items() if setup.value(ZERO, name) not in (None, default))
    offloads = ("offload_optimizer", "offload_param")
    yield from (
        f"{name} to {device_of(setup, name)}" for name in offloads if device_of(setup, name) not in _COUNTED_DEVICES
    )
    yield from (name for name in ("cpu_offload", "cpu_offload_param") if setup.on(ZERO, name))
    if setup.stage in (1, 2) and not setup.on(ZERO, "contiguous_gradients") and setup.schema.numbers < (0, 19, 8):
        yield "contiguous_gradients: false"
    if setup.stage == ZeroStage.PARAMETERS:
        yield from _at_stage_3(setup)
    if setup.value(ZERO, "zenflow") is not None:
        yield "zenflow"
    if setup.section("optimizer").get("type") in OTHER_OPTIMIZERS:
        yield f"the optimizer {setup.section('optimizer')['type']}"
    yield from (name for name in ("sparse_gradients", "elasticity") if setup.config.get(name))
    yield from (name for name in ("torch_autocast", "compile", "amp") if setup.section(name).get("enabled"))
    if setup.section("compile").get("deepcompile"):
        yield "deepcompile"


def _of_experts(setup: Setup, model: Model) -> Iterator[str]:
    """Those of deepspeed.moe were counted; AutoEP's, which stage 3 needs, pass on what each expert is really given."""
    if setup.stage == ZeroStage.PARAMETERS or setup.section("expert_parallel").get("enabled"):
        yield "expert parallelism by AutoEP"
    elif model.experts is None:
        yield "expert parallelism of a model whose experts are not known"
    elif model.shape is None or model.usage.sequence is None:
        yield "tokens to experts of a model whose layers, widths or sequences are not known"


def _at_stage_3(setup: Setup) -> Iterator[str]:
    if not setup.on(ZERO, "reduce_scatter"):
        yield "reduce_scatter: false at stage 3"
    if not setup.value(ZERO, "max_reuse_distance") and setup.value(ZERO, "prefetch_bucket_size"):
        yield "stage3_max_reuse_distance: 0 while prefetching"
    yield from (f"{key}: auto" for key, value in setup.section(ZERO).items() if value == AUTO and key in _FILLED)
