"""The value "auto": the Hugging Face integration fills some of them in, DeepSpeed itself knows none."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.spec import Integration
from deepspeed_operator.dsconfig.batch import ACCUMULATION, AUTO, MICRO, TRAIN
from deepspeed_operator.dsconfig.notes import Note, Path, advice, warning, written

# Path → what the Trainer writes there.
FILLED: Final[Mapping[str, str]] = {
    TRAIN: "per_device_train_batch_size × gradient_accumulation_steps × ranks",
    MICRO: "per_device_train_batch_size",
    ACCUMULATION: "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
    "optimizer.params.lr": "learning_rate",
    "optimizer.params.betas": "adam_beta1, adam_beta2",
    "optimizer.params.eps": "adam_epsilon",
    "optimizer.params.weight_decay": "weight_decay",
    "scheduler.params.warmup_min_lr": "0",
    "scheduler.params.warmup_max_lr": "learning_rate",
    "scheduler.params.warmup_num_steps": "warmup steps",
    "scheduler.params.total_num_steps": "training steps",
    "fp16.enabled": "fp16",
    "bf16.enabled": "bf16",
    "zero_optimization.reduce_bucket_size": "hidden size²",
    "zero_optimization.stage3_prefetch_bucket_size": "0.9 × hidden size²",
    "zero_optimization.stage3_param_persistence_threshold": "10 × hidden size",
}
_DEEPEST: Final = 4
_SAY_SO: Final = "If it does, write spec.training.integration: Accelerate, which says so. If not, write values."


def auto_paths(config: Mapping[str, Any]) -> list[Path]:
    """Return where the configuration says "auto"."""
    return list(_autos(config, ()))


def auto_notes(paths: list[Path], integration: Integration | None = None) -> list[Note]:
    """List what the Trainer fills in, and what it leaves to DeepSpeed, which takes its default or the word itself.

    `integration`: the framework that the job names; one that fills values in needs no word then. None where nothing is
    known of the program.
    """
    filled = [path for path in paths if written(path) in FILLED]
    left = [path for path in paths if written(path) not in FILLED and not _means_auto(path)]
    message = '"auto" is filled in by nobody here: DeepSpeed takes its default, or the word itself.'
    notes = [warning(path, Code.AUTO_UNFILLED, message, "Remove it, or write a value.") for path in left]
    if filled and integration in {None, Integration.NONE}:
        listed = "; ".join(f"{written(path)}: {FILLED[written(path)]}" for path in filled)
        message = (
            f'"auto" is filled in by the Hugging Face Trainer or Accelerate ({listed}). DeepSpeed alone cannot read it.'
        )
        if integration is Integration.NONE:
            # The Trainer takes the path as an argument: it works without a word in the job, which nobody sees here.
            message += " Nothing in the job says that its program uses one of them."
            notes.append(warning((), Code.AUTO_VALUES, message, _SAY_SO))
        else:
            notes.append(advice((), Code.AUTO_VALUES, message, "Without the Trainer or Accelerate, write values."))
    return notes


def _means_auto(path: Path) -> bool:
    """Where DeepSpeed itself has a value of this name."""
    return path[0] in {"pipeline", "expert_parallel", "data_types"} or "zenflow" in path


def _autos(values: Mapping[str, Any], path: Path) -> Iterator[Path]:
    for key, value in values.items():
        if value == AUTO:
            yield (*path, key)
        elif isinstance(value, dict) and len(path) < _DEEPEST:
            yield from _autos(cast(Mapping[str, Any], value), (*path, key))
