"""What DeepSpeed's engine refuses when it starts: precision, parallelism and gradients.

Mirrored from its source, because no configuration alone can ask it.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.untyped import list_at, object_at
from deepspeed_operator.dsconfig.batch import AUTO
from deepspeed_operator.dsconfig.intent import intended, written_instead
from deepspeed_operator.dsconfig.needed import needed_notes
from deepspeed_operator.dsconfig.notes import Note, Path, refused, warning
from deepspeed_operator.dsconfig.offload import offload_notes, sums_bf16_in_fp32
from deepspeed_operator.dsconfig.optimizers import optimizer_notes
from deepspeed_operator.dsconfig.schedulers import scheduler_notes
from deepspeed_operator.dsconfig.schema import TOP
from deepspeed_operator.dsconfig.setup import FP16, ZERO, Setup, ZeroStage
from deepspeed_operator.dsconfig.wording import quoted

_DTYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(FP16, "fp16"),
    **dict.fromkeys(("torch.float32", "fp32", "float32", "float"), "fp32"),
    **dict.fromkeys(("torch.bfloat16", "bf16", "bfloat16", "bfloat"), "bf16"),
}
_ONE_DTYPE_AT_STAGE_0: Final = (0, 18, 0)  # since then stage 0 accumulates in the model's type only
_BF16_IN_BF16: Final = (0, 17, 6)  # since then stage 0 accumulates bf16 in bf16, too
_FP16_ON_CPUS_AT_STAGE_0: Final = (0, 16, 0)  # since then where the CPU itself has it
_GATHERS_WHAT_HAS_GRADIENTS: Final = ((0, 18, 7), (0, 19, 2))  # since, and before
_SCALES_AUTOCAST: Final = (0, 18, 0)  # since then autocast to fp16 has a scaler at stage 0
_PRESET: Final = "preset_model"  # None: the engine finds it by the model
_LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical")


def engine_notes(setup: Setup) -> Iterator[Note]:
    yield from _precision(setup)
    yield from _amp(setup)
    yield from _pipeline(setup)
    yield from _tensor(setup)
    yield from _experts(setup)
    yield from _gradients(setup)
    yield from _bookkeeping(setup)
    yield from offload_notes(setup)
    yield from optimizer_notes(setup)
    yield from scheduler_notes(setup)


def _precision(setup: Setup) -> Iterator[Note]:
    if setup.fp16 and setup.accelerator == "cpu":
        yield _fp16_on_cpus(setup)
    model = "fp16" if setup.fp16 else "bf16" if setup.bf16 else "fp32"
    if setup.on("fp16", "auto_cast") and not setup.fp16 and setup.schema.sections[TOP].keys["fp16"].model is not None:
        # Older versions, which read the section key by key, read this one only where fp16 is on.
        message = f"acts although fp16 is off: a {model} model gets floating-point inputs in fp16, and fails on them."
        yield warning(("fp16", "auto_cast"), Code.AUTO_CAST_WITHOUT_FP16, message, "Remove it.")
    yield from _accumulation(setup, model)
    for key in ("param_dtype", "buffer_dtype"):
        wanted = setup.section("data_types").get(key)
        path: Path = ("data_types", key)
        if wanted is None or not _reads(setup, key):
            continue
        if not isinstance(wanted, str) or (wanted not in _DTYPES and "int8" not in wanted):
            yield refused(
                path, Code.INVALID_VALUE, f"must be one of fp32, bf16, fp16, not {quoted(wanted)}.", "Correct it."
            )
        elif key == "param_dtype" and _DTYPES.get(wanted) != model:
            message = f"{quoted(wanted)} conflicts with the precision of the model, which is {model}."
            yield refused(path, Code.DTYPE_MISMATCH, message, f"Enable {_DTYPES.get(wanted, model)}, or remove it.")


def _fp16_on_cpus(setup: Setup) -> Note:
    path: Path = ("fp16", "enabled")
    fix = "Write bf16: {enabled: true} instead, or neither. To train on GPUs, write them into the trainer's limits."
    if setup.stage == 0 and setup.schema.numbers < _FP16_ON_CPUS_AT_STAGE_0:
        message = "this version reduces no fp16 gradients on CPUs at ZeRO stage 0: the first step fails on any of them."
        return refused(path, Code.UNSUPPORTED_ACCELERATOR, message, fix)
    # The node's CPU decides, which nobody knows here.
    message = (
        "the job trains on CPUs, and on one without AVX512-FP16 deepspeed.initialize fails: Type fp16 is not supported."
    )
    return warning(path, Code.UNSUPPORTED_ACCELERATOR, message, fix)


def _amp(setup: Setup) -> Iterator[Note]:
    if not setup.on("amp", "enabled") or not setup.schema.starts_refusing("amp_and_zero"):
        return
    path: Path = ("amp", "enabled")
    if setup.stage:
        message = "Apex AMP and ZeRO are not compatible."
        yield refused(
            path, Code.NOT_WITH_ZERO, message, "Enable bf16 or fp16 instead, or write zero_optimization.stage: 0."
        )
    elif setup.fp16 or setup.bf16:
        message = f"Apex AMP and {'fp16' if setup.fp16 else 'bf16'} cannot both be enabled."
        yield refused(path, Code.PRECISION_CONFLICT, message, "Disable one of them.")


def _accumulation(setup: Setup, model: str) -> Iterator[Note]:
    given = setup.section("data_types").get("grad_accum_dtype")
    path: Path = ("data_types", "grad_accum_dtype")
    if given is None:
        return
    wanted = _DTYPES.get(given) if isinstance(given, str) else None
    if wanted is None:
        yield refused(
            path, Code.INVALID_VALUE, f"must be one of fp32, bf16, fp16, not {quoted(given)}.", 'Write "fp32".'
        )
    elif setup.stage == 0 and not _mixes(setup, model, wanted):
        message = f"{wanted} with a {model} model does not work at ZeRO stage 0."
        yield refused(path, Code.DTYPE_MISMATCH, message, f"Remove it, or write {ZERO}.stage: 1.")


def _mixes(setup: Setup, model: str, accumulation: str) -> bool:
    if setup.schema.numbers >= _ONE_DTYPE_AT_STAGE_0 or model != "bf16":
        return model == accumulation
    in_bf16 = setup.schema.numbers >= _BF16_IN_BF16 or setup.division.pipeline > 1
    return accumulation == "fp32" or (accumulation == "bf16" and in_bf16)


def _pipeline(setup: Setup) -> Iterator[Note]:
    if setup.division.pipeline > 1 and setup.stage >= ZeroStage.GRADIENTS:
        message = "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism."
        yield refused((ZERO, "stage"), Code.NOT_WITH_PIPELINE, message, "Write stage: 1, or run without a pipeline.")


def _tensor(setup: Setup) -> Iterator[Note]:
    size: int = setup.value("tensor_parallel", "autotp_size") or 0
    if size <= 1:
        return
    if setup.stage > ZeroStage.GRADIENTS and setup.schema.starts_refusing("autotp_and_stage_3"):
        message = "this version refuses AutoTP (tensor_parallel.autotp_size) at ZeRO stage 3."
        yield refused(
            (ZERO, "stage"),
            Code.AUTOTP_AT_STAGE_3,
            message,
            "Write stage: 2 or less, or use DeepSpeed 0.19.5 or newer.",
        )
    inner: Mapping[str, int] = setup.value("tensor_parallel", "tensor_parallel") or {}
    if inner.get("tp_size", 1) not in (1, size) and setup.schema.starts_refusing("autotp_sizes"):
        path: Path = ("tensor_parallel", setup.name_of_inner_tp, "tp_size")
        message = f"{inner['tp_size']} does not match tensor_parallel.autotp_size, which is {size}."
        yield refused(path, Code.CONTRADICTORY_SIZES, message, "Remove it.")


def _experts(setup: Setup) -> Iterator[Note]:
    section = setup.section("expert_parallel")
    if not setup.on("expert_parallel", "enabled"):
        return
    words: Mapping[str, list[str]] = setup.schema.rules["expert_words"]
    for key, choices in words.items():
        given = section.get(key, choices[0])
        if given not in choices and not (given is None and key == _PRESET):
            message = f"must be one of {', '.join(choices)}, not {quoted(given)}."
            yield refused(("expert_parallel", key), Code.INVALID_VALUE, message, f"Write {choices[0]}, or remove it.")
    for key in ("autoep_size", "expert_tensor_parallel_size"):
        size = section.get(key, 1)
        if type(size) is not int or size < 1:
            message = f"must be a whole number above 0, not {quoted(size)}."
            yield refused(("expert_parallel", key), Code.INVALID_VALUE, message, f"Write {key}: 1, for example.")


def _gradients(setup: Setup) -> Iterator[Note]:
    if setup.stage < ZeroStage.GRADIENTS or not setup.on(ZERO, "reduce_scatter"):
        return
    average = str(setup.plain("gradient_allreduce_op") or "mean").lower() != "sum"
    if setup.stage == ZeroStage.GRADIENTS and not average:
        return
    fix = f"Remove it, or write {ZERO}.reduce_scatter: false."
    if setup.plain("prescale_gradients"):
        message = f"pre-scaling gradients is not supported at ZeRO stage {setup.stage} with reduce_scatter."
        yield refused(("prescale_gradients",), Code.NOT_WITH_REDUCE_SCATTER, message, fix)
    if setup.plain("gradient_predivide_factor") != 1:
        message = f"a factor other than 1 is not supported at ZeRO stage {setup.stage} with reduce_scatter."
        yield refused(("gradient_predivide_factor",), Code.NOT_WITH_REDUCE_SCATTER, message, fix)


def _bookkeeping(setup: Setup) -> Iterator[Note]:
    schema = setup.schema
    if schema.starts_refusing("managed_gradient_accumulation") and not setup.plain("managed_gradient_accumulation"):
        yield from _unmanaged(setup)
    yield from _numbers(setup)
    yield from needed_notes(setup)
    yield from _window(setup)
    yield from _bucket(setup)
    yield from _gathered(setup)
    level = setup.plain("log_level")
    if level is not None and schema.starts_refusing("log_level") and str(level).lower() not in _LOG_LEVELS:
        message = f"must be one of {', '.join(_LOG_LEVELS)}, not {quoted(level)}."
        yield refused(("log_level",), Code.INVALID_VALUE, message, 'Write "warning", or remove it.')
    modules = list_at(setup.config, "torch_autocast", "lower_precision_safe_modules")
    undotted = [name for name in modules if isinstance(name, str) and "." not in name]
    if setup.on("torch_autocast", "enabled") and undotted:
        message = f"{quoted(undotted[0])} cannot be imported: a module's class is named with its package."
        path: Path = ("torch_autocast", "lower_precision_safe_modules")
        yield refused(path, Code.INVALID_VALUE, message, "Write torch.nn.Linear, for example.")
    autocast = setup.on("torch_autocast", "enabled")
    half = "fp16" if setup.fp16 else "bf16" if setup.bf16 else None
    if autocast and half and schema.starts_refusing("autocast_and_half"):
        message = f"this version refuses torch_autocast together with {half}."
        yield refused(("torch_autocast", "enabled"), Code.PRECISION_CONFLICT, message, "Disable one of them.")
    elif half:
        yield from _autocast_beside_half(setup, half)
    if autocast and setup.on(ZERO, "zero_quantized_weights") and schema.starts_refusing(_AUTOCAST):
        message = "torch_autocast and zero_quantized_weights exclude each other."
        yield refused(("torch_autocast", "enabled"), Code.AUTOCAST_AND_QUANTIZED, message, "Disable one of them.")
    if setup.accelerator == "cpu" and setup.stage > ZeroStage.GRADIENTS:
        message = "the quantizer is not implemented for CPUs."
        for key in (key for key in _QUANTIZED if setup.on(ZERO, key)):
            yield refused((ZERO, key), Code.UNSUPPORTED_ACCELERATOR, message, "Remove it.")
    yield from _writer(setup)


def _writer(setup: Setup) -> Iterator[Note]:
    """Below stage 3 DeepSpeed asks the script's mpu which ranks write a checkpoint, unless this key says it."""
    writer, known = object_at(setup.config, "checkpoint", "writer"), "checkpoint.writer" in setup.schema.sections
    if not writer or not known or writer.get(_WRITERS) or setup.stage > ZeroStage.GRADIENTS:
        return
    message = "is missing: without it DeepSpeed fails when it starts, unless the script passes an mpu."
    yield warning(("checkpoint", "writer", _WRITERS), Code.MISSING_KEY, message, f'Write {_WRITERS}: "replica".')


def _numbers(setup: Setup) -> Iterator[Note]:
    """What the engine compares with, or divides by, at the first step at the latest."""
    clipping, steps = (setup.config.get(key, 1) for key in ("gradient_clipping", "steps_per_print"))
    if clipping != AUTO and not isinstance(clipping, int | float):
        message = f"must be a number, not {quoted(clipping)}."
        fix = written_instead("gradient_clipping", intended(float, clipping), 1.0)
        yield refused(("gradient_clipping",), Code.INVALID_VALUE, message, fix)
    if steps is not None and steps != AUTO and not (isinstance(steps, int | float) and steps):
        message = f"must be a number other than 0, not {quoted(steps)}: the engine divides by it."
        fix = written_instead("steps_per_print", intended(int, steps) or None, 10)
        yield refused(("steps_per_print",), Code.INVALID_VALUE, message, fix)


def _window(setup: Setup) -> Iterator[Note]:
    """Steps without an overflow are counted in windows of so many, unless the scale is a given one."""
    if not setup.fp16 or setup.value("fp16", "loss_scale") or setup.value("fp16", "loss_scale_window") != 0:
        return
    message = "0 is divided by: training fails at the first or the second step without an overflow."
    path: Path = ("fp16", "loss_scale_window")
    yield (refused if setup.names_optimizer else warning)(path, Code.OUT_OF_RANGE, message, "Write 1000, or remove it.")


def _bucket(setup: Setup) -> Iterator[Note]:
    """Each gradient is told in per cent of the bucket, where there is one; newer versions refuse 0 as they read it."""
    if setup.stage and not sums_bf16_in_fp32(setup) and setup.value(ZERO, "reduce_bucket_size") == 0:
        message = "0 is divided by: the first step fails at ZeRO stages 1 to 3."
        fix = "Write 500000000, which is the default, or remove it."
        yield (refused if setup.names_optimizer else warning)(
            (ZERO, "reduce_bucket_size"), Code.OUT_OF_RANGE, message, fix
        )


def _autocast_beside_half(setup: Setup, half: str) -> Iterator[Note]:
    """At stage 0 a scaler looks for gradients in DeepSpeed's wrapper of the optimizer, which keeps them elsewhere."""
    if setup.stage or setup.version < _SCALES_AUTOCAST or not setup.autocasts_to_fp16:
        return
    message = f"to fp16 beside {half} fails in the first step at ZeRO stage 0: No inf checks were recorded."
    yield (refused if setup.names_optimizer else warning)(
        ("torch_autocast", "dtype"), Code.PRECISION_CONFLICT, message, f'Write "bfloat16", or disable {half}.'
    )


def _gathered(setup: Setup) -> Iterator[Note]:
    """On CPUs, gloo does not write into parts of a tensor that has gradients; another library for them may."""
    since, before = _GATHERS_WHAT_HAS_GRADIENTS
    partitions = setup.stage in {ZeroStage.OPTIMIZER_STATES, ZeroStage.GRADIENTS} and not sums_bf16_in_fp32(setup)
    if setup.accelerator == "cpu" and partitions and setup.world > 1 and since <= setup.version < before:
        message = "this version's first step fails with gloo on CPUs, at stages 1 and 2 in more than one rank."
        yield warning(
            (ZERO, "stage"), Code.UNSUPPORTED_ACCELERATOR, message, "Use DeepSpeed 0.19.2 or newer, or write stage: 3."
        )


def _unmanaged(setup: Setup) -> Iterator[Note]:
    overlaps = setup.value(ZERO, "overlap_comm")
    reasons = {
        "overlap_comm below ZeRO stage 2": overlaps and setup.stage < ZeroStage.GRADIENTS,
        "pipeline parallelism": setup.division.pipeline > 1,
        "DeepCompile": setup.on("compile", "deepcompile"),
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if found:
        message = f"false does not work with {' or '.join(found)}."
        yield refused(("managed_gradient_accumulation",), Code.UNMANAGED_ACCUMULATION, message, "Remove it.")


def _reads(setup: Setup, key: str) -> bool:
    section = setup.schema.sections.get("data_types")
    return section is not None and key in section.keys


_AUTOCAST: Final = "torch_autocast_and_quantized_weights"
_QUANTIZED: Final = ("zero_quantized_weights", "zero_quantized_nontrainable_weights")
_WRITERS: Final = "data_parallel"
