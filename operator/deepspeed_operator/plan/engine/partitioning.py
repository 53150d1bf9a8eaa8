"""What each rank holds and reduces, as DeepSpeed's engine divides it at the configured stage."""

from collections.abc import Mapping
from typing import Any, Final

from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.offload import sums_bf16_in_fp32, uses_cpu_optimizer
from deepspeed_operator.dsconfig.setup import ZERO, Setup, ZeroStage
from deepspeed_operator.plan.model.architecture import Model

_BYTES: Final = {"fp32": 4, "fp16": 2, "bf16": 2}
# DeepSpeed's own default, where a stage knows no such key.
_BUCKET: Final = 500_000_000


def model_bytes(setup: Setup) -> int:
    """Bytes of a parameter as the model computes with it."""
    return 2 if setup.bf16 or setup.fp16 else 4


def sent_bytes(setup: Setup) -> int:
    """Bytes of a gradient as it is sent."""
    asked = setup.plain("communication_data_type")
    return _BYTES.get(str(asked).lower(), model_bytes(setup)) if asked else model_bytes(setup)


def trained_here(setup: Setup, model: Model) -> int:
    """Return the trained parameters of which a rank computes gradients."""
    if model.experts is None:
        return -(-model.trained // model_parts(setup))
    shared = (model.trained - model.experts.total) // (setup.division.tensor * setup.division.pipeline)
    return shared + own_experts(setup, model)


def own_experts(setup: Setup, model: Model) -> int:
    """Return the parameters of the experts that a rank holds, 0 for a model without any."""
    return model.experts.total // model_parts(setup) if model.experts is not None else 0


def model_parts(setup: Setup) -> int:
    """How many ranks divide the model at most: what all of them hold is left out."""
    division = setup.division
    return division.tensor * division.pipeline * division.expert


def to_single_ranks(setup: Setup) -> bool:
    """Whether parts of a bucket are reduced to the ranks that own them, and not all to all."""
    asked = setup.on(ZERO, "reduce_scatter") and not setup.on(ZERO, "use_multi_rank_bucket_allreduce")
    return asked and setup.on(ZERO, "contiguous_gradients") and not summed_by_bf16_optimizer(setup)


def reduce_buckets(setup: Setup, trained: int) -> int:
    """Return how many buckets gradients of so many parameters fill."""
    return -(-trained // int(setup.value(ZERO, "reduce_bucket_size") or _BUCKET))


def replaced_by_bf16_optimizer(setup: Setup) -> bool:
    """Whether stage 0 in bf16 partitions the optimizer's state all the same: up to 0.16, there is no other wrapper."""
    return setup.stage == ZeroStage.DISABLED and setup.bf16 and setup.schema.numbers < (0, 17, 0)


def summed_by_bf16_optimizer(setup: Setup) -> bool:
    """Whether stage 1 is done by BF16_Optimizer, which knows none of ZeRO's options."""
    return sums_bf16_in_fp32(setup) and not offloads(setup)


def offloads(setup: Setup) -> bool:
    """Whether the optimizer's states lie outside the GPU."""
    return setup.stage > ZeroStage.DISABLED and (uses_cpu_optimizer(setup) or setup.on(ZERO, "cpu_offload"))


def gather_buckets(setup: Setup, trained: int) -> int:
    """Return how many collectives gather so many parameters after the step, up to stage 2."""
    return -(-trained // int(setup.value(ZERO, "allgather_bucket_size") or _BUCKET))


def runs(model: Model, config: Mapping[str, Any]) -> bool:
    """Whether the model's layers run at this stage: those of deepspeed.moe are refused at stage 3."""
    return model.experts is None or object_at(config, ZERO).get("stage") != ZeroStage.PARAMETERS
