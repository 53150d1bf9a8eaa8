"""What DeepSpeed ignores or quietly changes, without a word in any log."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.spec import Integration
from deepspeed_operator.api.status import Batch
from deepspeed_operator.dsconfig.batch import ACCUMULATION, AUTO, MICRO, TRAIN
from deepspeed_operator.dsconfig.notes import Note, advice, warning
from deepspeed_operator.dsconfig.offload import OPTIMIZER, PARAM, device_of, uses_cpu_optimizer
from deepspeed_operator.dsconfig.setup import ZERO, Setup, ZeroStage

_ZERO_PLUS_PLUS: Final = ("zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_gradients")


def ignored_notes(setup: Setup, batch: Batch | None, filled_in: bool) -> Iterator[Note]:
    """Yield warnings, and advice where it depends on the script.

    `filled_in`: the configuration is made for the Hugging Face Trainer, which reads all of it.
    """
    yield from _samples(setup, batch)
    yield from _below_stage_3(setup)
    yield from _zero(setup)
    yield from _sections(setup)
    if not filled_in and setup.integration in {None, Integration.NONE}:
        yield from _client(setup)


def _samples(setup: Setup, batch: Batch | None) -> Iterator[Note]:
    """The batch size that DeepSpeed computes, beside the samples that a step consumes."""
    divisor, shards = setup.division.divisor, setup.division.shards
    if batch is None or divisor is None or shards is None or divisor == shards:
        return
    if batch.train is None or batch.micro_per_gpu is None or batch.accumulation is None:
        return
    consumed = batch.micro_per_gpu * batch.accumulation * shards
    who = "tensor-parallel ranks, which see the same data," if shards < divisor else "ranks"
    message = (
        f"{batch.train} counts {divisor} {who} as data-parallel ones: a step consumes {MICRO} {batch.micro_per_gpu} × "
        f"{ACCUMULATION} {batch.accumulation} × {shards} = {consumed} samples."
    )
    yield warning(
        (TRAIN,),
        Code.SAMPLES_PER_STEP,
        message,
        "Compare learning rates and losses by the samples, not by this number.",
    )


def _below_stage_3(setup: Setup) -> Iterator[Note]:
    if setup.stage >= ZeroStage.PARAMETERS:
        return
    if device_of(setup, PARAM) != "none":
        message = f"parameters are offloaded at ZeRO stage 3 only: at stage {setup.stage} this is silently ignored."
        yield warning((ZERO, PARAM), Code.ZERO_STAGE, message, "Remove it, or write stage: 3.")
    given = setup.section(ZERO)
    for key in given:
        if key.startswith("stage3_") and given[key] != AUTO and not key.startswith("stage3_gather_"):
            message = f"has an effect at ZeRO stage 3 only, and the stage is {setup.stage}: it is silently ignored."
            yield warning((ZERO, key), Code.ZERO_STAGE, message, "Remove it, or write stage: 3.")
    for key in _ZERO_PLUS_PLUS:
        value = setup.value(ZERO, key) or 0
        if value is True or value > 1:
            message = f"has an effect at ZeRO stage 3 only, and the stage is {setup.stage}: it is silently ignored."
            yield warning((ZERO, key), Code.ZERO_STAGE, message, "Remove it, or write stage: 3.")


def _zero(setup: Setup) -> Iterator[Note]:
    given = setup.section(ZERO)
    if isinstance(setup.config.get(ZERO), bool):
        message = "true or false is the form of years ago: true means stage 1, false none."
        yield warning((ZERO,), Code.DEPRECATED_KEY, message, f"Write {ZERO}: {{stage: {setup.stage}}}.")
    if setup.stage in {1, 2} and "reduce_scatter" in given and setup.on(ZERO, "use_multi_rank_bucket_allreduce"):
        message = (
            f"changes nothing at ZeRO stage {setup.stage}: gradients are all-reduced as long as "
            "use_multi_rank_bucket_allreduce is true, which is its default."
        )
        fix = "Remove it, or write use_multi_rank_bucket_allreduce: false, too."
        yield warning((ZERO, "reduce_scatter"), Code.NO_EFFECT, message, fix)
    if setup.stage == 0 and uses_cpu_optimizer(setup):
        message = "at stage 0 nothing is offloaded: only the optimizer's implementation changes to the CPU's."
        yield warning((ZERO, OPTIMIZER), Code.ZERO_STAGE, message, "Remove it, or write stage: 1 or more.")
    if setup.on(ZERO, "elastic_checkpoint"):
        message = "does nothing any more: a checkpoint loads with another number of ranks only if it is universal."
        yield warning(
            (ZERO, "elastic_checkpoint"), Code.NO_EFFECT, message, "Write checkpoint: {load_universal: true}."
        )


def _sections(setup: Setup) -> Iterator[Note]:
    checkpointing = setup.section("activation_checkpointing")
    if any(value and key != "number_checkpoints" for key, value in checkpointing.items()):
        message = "does nothing by itself: it is for models that call deepspeed.checkpointing.checkpoint."
        fix = "Check that the model calls it; Hugging Face models have gradient_checkpointing instead."
        yield warning(("activation_checkpointing",), Code.NEEDS_CALL, message, fix)
    for key in ("stages", "partition"):
        if setup.section("pipeline").get(key) not in (None, AUTO, "best"):
            message = "is not read: the script's PipelineModule decides."
            yield warning(("pipeline", key), Code.IGNORED_KEY, message, "Give it to PipelineModule.")
    if setup.on("compile", "deepcompile"):
        message = "does nothing until the script calls engine.compile()."
        yield warning(("compile", "deepcompile"), Code.NEEDS_CALL, message, "Call engine.compile() after initialize().")
    parallel = setup.models.get("tensor_parallel", {})
    inner: Mapping[str, Any] = parallel.get("tensor_parallel") or {}
    if (inner.get("tp_size") or 1) > 1 and (parallel.get("autotp_size") or 0) <= 1:
        message = "without autotp_size above 1, tensor parallelism stays off: this is silently ignored."
        fix = f"Write tensor_parallel.autotp_size: {inner['tp_size']}."
        yield warning(("tensor_parallel", setup.name_of_inner_tp, "tp_size"), Code.NO_EFFECT, message, fix)
    if setup.section("aio") and "nvme" not in {device_of(setup, OPTIMIZER), device_of(setup, PARAM)}:
        message = "has an effect with NVMe offloading only."
        yield warning(("aio",), Code.NO_EFFECT, message, "Remove it, or offload to nvme.")


def _client(setup: Setup) -> Iterator[Note]:
    """Where an optimizer that the script passes decides whether DeepSpeed starts."""
    if uses_cpu_optimizer(setup) and setup.plain("zero_force_ds_cpu_optimizer"):
        remark = advice if setup.section("optimizer") else warning
        message = "DeepSpeed refuses to start if the script passes an optimizer of torch.optim to deepspeed.initialize."
        fix = "Let the configuration's optimizer be made, or write zero_force_ds_cpu_optimizer: false."
        yield remark((ZERO, OPTIMIZER), Code.SCRIPT_OPTIMIZER, message, fix)
