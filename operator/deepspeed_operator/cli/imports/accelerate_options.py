"""What `accelerate launch` makes of its options: a DeepSpeed configuration, and variables."""

from typing import Final

from deepspeed_operator.api.untyped import Json, present
from deepspeed_operator.cli.imports.launcher_options import LauncherOptions, number

_DEFAULT_STAGE: Final = 2


def configuration_of(options: LauncherOptions) -> Json | None:
    """Return the configuration that accelerate's DeepSpeedPlugin writes; None without DeepSpeed or with a file."""
    if not options.has("use_deepspeed") or options.has("deepspeed_config_file"):
        return None
    zero: Json = {"stage": number(options.last("zero_stage")) or _DEFAULT_STAGE}
    if options.last("zero_stage") == "0":
        zero["stage"] = 0
    for part in ("optimizer", "param"):
        device = options.last(f"offload_{part}_device")
        if device not in {None, "none"}:
            path = options.last(f"offload_{part}_nvme_path")
            zero[f"offload_{part}"] = present({"device": device, "nvme_path": path})
    if zero["stage"] == 3 and options.last("zero3_save_16bit_model") is not None:
        zero["stage3_gather_16bit_weights_on_model_save"] = options.last("zero3_save_16bit_model") == "true"
    clipping = options.last("gradient_clipping")
    precision = options.last("mixed_precision")
    return present(
        {
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": number(options.last("gradient_accumulation_steps")) or 1,
            "gradient_clipping": float(clipping) if clipping and _is_number(clipping) else None,
            "zero_optimization": zero,
            "zero_allow_untested_optimizer": True,
            "bf16": {"enabled": True} if precision == "bf16" else None,
            "fp16": {"enabled": True} if precision == "fp16" else None,
        }
    )


def environment_of(options: LauncherOptions) -> dict[str, str]:
    """Return the variables in which accelerate tells the ranks its options, but for those of a configuration."""
    given: dict[str, str | None] = {}
    if options.has("use_deepspeed"):
        given["ACCELERATE_DEEPSPEED_ZERO3_INIT"] = options.last("zero3_init_flag")
        file = options.last("deepspeed_config_file")
        if file is not None:
            given |= {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": file}
            given["ACCELERATE_MIXED_PRECISION"] = options.last("mixed_precision")
    else:
        given["ACCELERATE_MIXED_PRECISION"] = options.last("mixed_precision")
        given["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = options.last("gradient_accumulation_steps")
        given["ACCELERATE_USE_CPU"] = "true" if options.has("cpu") else None
    given["OMP_NUM_THREADS"] = options.last("num_cpu_threads_per_process")
    return {name: value for name, value in given.items() if value}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
