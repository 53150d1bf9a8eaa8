"""What DeepSpeed's engine refuses about ZeRO: offloading, hierarchical partitions, ZenFlow, master weights."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.batch import AUTO
from deepspeed_operator.dsconfig.notes import Note, Path, refused, warning
from deepspeed_operator.dsconfig.setup import ZERO, Setup, ZeroStage
from deepspeed_operator.dsconfig.wording import plural

OPTIMIZER: Final = "offload_optimizer"
PARAM: Final = "offload_param"
_ZENFLOW_AT_STAGE_3: Final = (0, 18, 0)
_ZENFLOW_IS_TESTED: Final = (0, 19, 5)
ADAMS: Final = frozenset({"adam", "adamw"})
_ON_THE_HOST: Final = ADAMS | {"adagrad", "lion"}


def offload_notes(setup: Setup) -> Iterator[Note]:
    yield from _intervals(setup)
    if setup.stage == 0:
        yield from _on_the_host_for_nothing(setup)
        yield from _zenflow_elsewhere(setup, "ZenFlow's optimizer is one of ZeRO's: at stage 0 the first step fails.")
        return
    yield from _nvme(setup)
    yield from _ratio(setup)
    yield from _super_offload(setup)
    yield from _zenflow(setup)
    yield from _grad_norm(setup)
    yield from _master_weights(setup)
    yield from _hierarchy(setup)
    yield from _leftovers(setup)


def device_of(setup: Setup, section: str) -> str:
    """Where a section offloads to: none, cpu or nvme."""
    found: Mapping[str, Any] = setup.zero.get(section) or {}
    return str(getattr(found.get("device"), "value", found.get("device")) or "none")


def uses_cpu_optimizer(setup: Setup) -> bool:
    return device_of(setup, OPTIMIZER) != "none"


def sums_bf16_in_fp32(setup: Setup) -> bool:
    """Whether BF16_Optimizer wraps the optimizer: stage 1, bf16, gradients added up in fp32, nothing offloaded."""
    in_fp32 = setup.stage == ZeroStage.OPTIMIZER_STATES and setup.bf16 and setup.accumulates_in_fp32
    return in_fp32 and not uses_cpu_optimizer(setup)


def deepspeed_optimizer(setup: Setup) -> str | None:
    """Return the optimizer of the configuration, by DeepSpeed's name for its own implementation.

    None where the configuration names none, or asks for torch's.
    """
    kind = setup.section("optimizer").get("type")
    name = kind.lower() if isinstance(kind, str) else None
    return None if name in ADAMS and object_at(setup.config, "optimizer", "params").get("torch_adam") else name


def _refused(path: Path, code: Code, message: str, fix: str) -> Note:
    return refused((ZERO, *path), code, message, fix)


def _nvme(setup: Setup) -> Iterator[Note]:
    for section in (OPTIMIZER, PARAM):
        values: Mapping[str, Any] = setup.zero.get(section) or {}
        if device_of(setup, section) != "nvme":
            continue
        if setup.stage < ZeroStage.PARAMETERS:
            if section == OPTIMIZER:
                message = f"nvme works at ZeRO stage 3 only: at stage {setup.stage} it offloads to the CPU instead."
                yield warning(
                    (ZERO, section, "device"), Code.NVME_BELOW_STAGE_3, message, "Write device: cpu, or stage: 3."
                )
        elif values.get("nvme_path") is None:
            message = "is missing: NVMe offloading needs a path, and fails without one when the engine starts."
            yield _refused(
                (section, "nvme_path"), Code.MISSING_KEY, message, "Write nvme_path: /a/directory/on/the/drive."
            )


def _ratio(setup: Setup) -> Iterator[Note]:
    """What is not offloaded is stepped by an optimizer that DeepSpeed makes from its CPU's Adam."""
    values: Mapping[str, Any] = setup.zero.get(OPTIMIZER) or {}
    given = setup.names_optimizer
    if setup.stage < ZeroStage.PARAMETERS or not uses_cpu_optimizer(setup) or values.get("ratio") in {None, 1}:
        return
    path: Path = (OPTIMIZER, "ratio")
    if given and deepspeed_optimizer(setup) not in ADAMS:
        message = "below 1 works with DeepSpeed's own Adam and AdamW only."
        yield _refused(path, Code.NOT_WITH_OFFLOAD, message, "Remove it, or use AdamW without torch_adam.")
    elif given and setup.zero.get("zenflow") is not None:
        yield _refused(path, Code.NOT_WITH_ZENFLOW, "below 1 does not work with ZenFlow.", "Remove one of them.")


def _super_offload(setup: Setup) -> Iterator[Note]:
    values: Mapping[str, Any] = setup.zero.get(OPTIMIZER) or {}
    if not values.get("super_offload") or not setup.schema.starts_refusing("super_offload"):
        return
    path: Path = (OPTIMIZER, "super_offload")
    if setup.stage < ZeroStage.PARAMETERS:
        message = f"works at ZeRO stage 3 only: at stage {setup.stage} it is silently ignored."
        yield warning((ZERO, *path), Code.ZERO_STAGE, message, "Remove it, or write stage: 3.")
    elif setup.accelerator not in {None, "cuda"}:
        message = f"SuperOffload only supports NVIDIA GPUs, and the accelerator is {setup.accelerator}."
        yield _refused(path, Code.UNSUPPORTED_ACCELERATOR, message, "Remove it.")
    elif not uses_cpu_optimizer(setup) and setup.zero.get("zenflow") is None:
        message = "SuperOffload works with the CPU's Adam only, and the optimizer is not offloaded."
        yield _refused(path, Code.NEEDS_OFFLOAD, message, "Write device: cpu, or remove super_offload.")


def _on_the_host_for_nothing(setup: Setup) -> Iterator[Note]:
    """DeepSpeed takes the host's optimizer at stage 0, too; its step asserts that the parameters are there.

    With ZenFlow it is not asked to step.
    """
    on_host = setup.accelerator in {None, "cpu"} or setup.zero.get("zenflow") is not None
    name = deepspeed_optimizer(setup)
    if on_host or name not in _ON_THE_HOST or not uses_cpu_optimizer(setup):
        return
    message = f"at stage 0 {name} steps on the CPU, and the parameters stay on the device: the first step fails."
    yield _refused((OPTIMIZER,), Code.ZERO_STAGE, message, "Remove it, or write stage: 1 or more.")


def _zenflow_elsewhere(setup: Setup, message: str) -> Iterator[Note]:
    """Each micro step asks for what only its optimizers have; a forward pass alone, where the interval is found."""
    values: Mapping[str, Any] | None = setup.zero.get("zenflow")
    if values is None or setup.division.pipeline > 1:
        return
    finds = (values.get("update_interval") or AUTO) == AUTO and not values.get("full_warm_up_rounds")
    certain = finds or setup.names_optimizer
    yield (refused if certain else warning)(
        (ZERO, "zenflow"), Code.ZERO_STAGE, message, "Write stage: 2, or remove zenflow."
    )


def _zenflow(setup: Setup) -> Iterator[Note]:
    values: Mapping[str, Any] | None = setup.zero.get("zenflow")
    if values is None:
        return
    if setup.stage == ZeroStage.PARAMETERS:
        # There it trains without offloading, too.
        yield from _zenflow_at_stage_3(setup, values)
    elif not uses_cpu_optimizer(setup):
        fix = f"Write {OPTIMIZER}: {{device: cpu}}, or remove zenflow."
        yield _refused(
            ("zenflow",), Code.NEEDS_OFFLOAD, "ZenFlow must be used with the optimizer offloaded to the CPU.", fix
        )
    elif device_of(setup, OPTIMIZER) == "cpu" and _is_untested(setup):
        yield _untested()
    elif setup.section("optimizer").get("params") is None:
        message = "ZenFlow makes its optimizer from optimizer.params, also where the script passes one of its own."
        yield _refused(
            ("zenflow",), Code.ZENFLOW_PARAMS, message, "Write optimizer: {type: AdamW, params: {lr: 1e-4}}."
        )


def _is_untested(setup: Setup) -> bool:
    return setup.schema.numbers < _ZENFLOW_IS_TESTED and not setup.plain("zero_allow_untested_optimizer")


def _untested() -> Note:
    message = "this version refuses ZenFlow's optimizer as untested with ZeRO unless told otherwise."
    return _refused(("zenflow",), Code.UNTESTED_OPTIMIZER, message, "Write zero_allow_untested_optimizer: true, too.")


def _zenflow_at_stage_3(setup: Setup, values: Mapping[str, Any]) -> Iterator[Note]:
    if setup.version < _ZENFLOW_AT_STAGE_3:
        message = "this version has ZenFlow at stages 1 and 2 only: the first step fails."
        yield from _zenflow_elsewhere(setup, message)
    elif _is_untested(setup) and uses_cpu_optimizer(setup) and deepspeed_optimizer(setup) in ADAMS:
        yield _untested()
    elif setup.accelerator == "cpu":
        message = "ZenFlow at stage 3 makes its buffers on CUDA devices: a step fails on CPUs."
        certain = setup.names_optimizer and not values.get("full_warm_up_rounds")
        yield (refused if certain else warning)(
            (ZERO, "zenflow"), Code.UNSUPPORTED_ACCELERATOR, message, "Write stage: 2, or remove zenflow."
        )


def _intervals(setup: Setup) -> Iterator[Note]:
    """Checked at every stage."""
    values: Mapping[str, Any] | None = setup.zero.get("zenflow")
    if values is None:
        return
    strategy, interval = values.get("select_strategy") or "auto", values.get("select_interval") or "auto"
    if strategy == "auto" and isinstance(interval, int):
        message = 'a number is refused with select_strategy "auto".'
        yield _refused(
            ("zenflow", "select_interval"), Code.ZENFLOW_INTERVAL, message, 'Write select_strategy: "step", too.'
        )
    if strategy != "auto" and isinstance(interval, str):
        message = f"select_strategy {strategy} needs a number."
        yield _refused(
            ("zenflow", "select_interval"), Code.ZENFLOW_INTERVAL, message, "Write a number of steps or epochs."
        )
    update = values.get("update_interval")
    if strategy == "step" and isinstance(interval, int) and isinstance(update, int) and 0 < interval < update:
        message = f"{interval} is less than update_interval, which is {update}."
        yield _refused(("zenflow", "select_interval"), Code.OUT_OF_RANGE, message, f"Write {update} or more.")


def _grad_norm(setup: Setup) -> Iterator[Note]:
    if setup.on(ZERO, "compute_grad_norm") or not setup.schema.starts_refusing("compute_grad_norm_and_clipping"):
        return
    path: Path = ("compute_grad_norm",)
    if sums_bf16_in_fp32(setup) and setup.schema.starts_refusing("norm_of_fp32_sums"):
        message = "false does not work at ZeRO stage 1 in bf16 with gradients added up in fp32."
        yield _refused(path, Code.DTYPE_MISMATCH, message, "Remove it, or remove data_types.grad_accum_dtype.")
    if setup.plain("gradient_clipping"):
        clipping = setup.plain("gradient_clipping")
        message = f"false needs gradient_clipping 0, and it is {clipping}."
        yield _refused(path, Code.GRAD_NORM_AND_CLIPPING, message, "Write gradient_clipping: 0, or remove it.")
    if uses_cpu_optimizer(setup):
        yield _refused(
            path, Code.NOT_WITH_OFFLOAD, "false does not work with an offloaded optimizer.", "Remove one of them."
        )
    if setup.zero.get("zenflow") is not None:
        yield _refused(path, Code.NOT_WITH_ZENFLOW, "false does not work with ZenFlow.", "Remove one of them.")


def _master_weights(setup: Setup) -> Iterator[Note]:
    if sums_bf16_in_fp32(setup):
        return  # DeepSpeed's BF16_Optimizer looks at none of them
    fp16_key, bf16_key = (f"{half}_master_weights_and_grads" for half in ("fp16", "bf16"))
    exclusive = setup.schema.starts_refusing("master_weights_exclude_each_other")
    if exclusive and setup.stage and setup.on("fp16", fp16_key) and setup.on("bf16", bf16_key):
        # Also where fp16 or bf16 is off.
        message = f"excludes bf16.{bf16_key}, even where fp16 is off."
        yield refused(("fp16", fp16_key), Code.PRECISION_CONFLICT, message, "Remove one of them.")
        return
    both = setup.schema.starts_refusing("master_weights_need_offload")
    fp16 = both or setup.schema.starts_refusing("fp16_master_weights_need_offload")
    for section in (*(["fp16"] if fp16 else []), *(["bf16"] if both else [])):
        key = f"{section}_master_weights_and_grads"
        on_host = uses_cpu_optimizer(setup) and (not setup.names_optimizer or deepspeed_optimizer(setup) in ADAMS)
        if section == "bf16" and setup.on("bf16", "bf16_optimizer_states"):
            # States in bf16 may stay on the device; since a version, offloaded ones are the CPU's Adam's only.
            checked = setup.schema.starts_refusing("bf16_states_offloaded_to_others")
            on_host = on_host or not (checked and uses_cpu_optimizer(setup))
        when_off = section == "fp16" and setup.schema.rules["fp16_master_when_off"] and not setup.fp16
        if setup.on(section, key) and not on_host and not when_off:
            message = f"needs {ZERO}.{OPTIMIZER} with an Adam optimizer."
            fix = f"Write {ZERO}.{OPTIMIZER}: {{device: cpu}} and optimizer.type: AdamW, or remove it."
            yield refused((section, key), Code.NEEDS_OFFLOAD, message, fix)


def _hierarchy(setup: Setup) -> Iterator[Note]:
    shard: int = setup.value(ZERO, "mics_shard_size") or -1
    if setup.stage == ZeroStage.PARAMETERS and shard > 0 and setup.world % shard:
        message = f"the world's {plural(setup.world, 'rank')} cannot be divided by {shard}."
        yield _refused(("mics_shard_size",), Code.INDIVISIBLE_RANKS, message, "Write a number that divides the ranks.")
    size: int = setup.value(ZERO, "zero_hpz_partition_size") or 1
    if setup.stage < ZeroStage.PARAMETERS or size <= 1:
        return
    path: Path = ("zero_hpz_partition_size",)
    if not setup.names_optimizer:
        message = "DeepSpeed ends in an AttributeError while it starts if the script passes no optimizer, to evaluate."
        fix = "Write an optimizer, pass one to deepspeed.initialize, or remove it."
        yield warning((ZERO, *path), Code.SCRIPT_OPTIMIZER, message, fix)
    if size > setup.world:
        message = f"{size} is more than the world's {plural(setup.world, 'rank')}: DeepSpeed takes {setup.world}."
        yield warning((ZERO, *path), Code.PARTITION_EXCEEDS_WORLD, message, f"Write {setup.world} or less.")
    elif setup.world % size:
        message = f"the world's {plural(setup.world, 'rank')} cannot be divided by {size}."
        yield _refused(path, Code.INDIVISIBLE_RANKS, message, "Write the number of ranks on a node.")


def _leftovers(setup: Setup) -> Iterator[Note]:
    if setup.on(ZERO, "legacy_stage1"):
        message = "the old ZeRO stage 1 has been removed: DeepSpeed raises an exception."
        yield _refused(("legacy_stage1",), Code.REMOVED_KEY, message, "Remove it.")
    bucket = setup.value(ZERO, "allgather_bucket_size")
    checked = setup.stage < ZeroStage.PARAMETERS and not sums_bf16_in_fp32(setup)
    if checked and isinstance(bucket, int) and bucket % 2:
        message = f"must be even at ZeRO stages 1 and 2, and is {bucket}."
        yield _refused(("allgather_bucket_size",), Code.OUT_OF_RANGE, message, f"Write {bucket + 1}.")
