""" "auto" → numbers such as the Hugging Face Trainer would put there, in a given world."""

import copy
import math
from collections.abc import Mapping
from typing import Any

from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.batch import ACCUMULATION, AUTO, MICRO, TRAIN

_MICRO = 4
_HIDDEN = 4096
_VALUES: dict[str, Any] = {
    "gradient_clipping": 1.0,
    "optimizer.params.lr": 5e-5,
    "optimizer.params.betas": [0.9, 0.999],
    "optimizer.params.eps": 1e-8,
    "optimizer.params.weight_decay": 0.0,
    "scheduler.params.warmup_min_lr": 0,
    "scheduler.params.warmup_max_lr": 5e-5,
    "scheduler.params.warmup_num_steps": 10,
    "scheduler.params.total_num_steps": 100,
    "fp16.enabled": False,
    "bf16.enabled": True,
    "zero_optimization.reduce_bucket_size": _HIDDEN * _HIDDEN,
    "zero_optimization.stage3_prefetch_bucket_size": int(0.9 * _HIDDEN * _HIDDEN),
    "zero_optimization.stage3_param_persistence_threshold": 10 * _HIDDEN,
}


def filled(config: Mapping[str, Any], world: int) -> dict[str, Any]:
    values = copy.deepcopy(dict(config))
    for path, value in _VALUES.items():
        *sections, key = path.split(".")
        section = object_at(values, *sections)
        if section.get(key) == AUTO:
            section[key] = value
    _fill_batch(values, world)
    return values


def _fill_batch(values: dict[str, Any], world: int) -> None:
    """The Trainer writes one consistent triple; numbers that the file already has stay."""
    if values.get(MICRO) == AUTO:
        values[MICRO] = _MICRO
    if values.get(ACCUMULATION) == AUTO:
        values[ACCUMULATION] = 1
    if values.get(TRAIN) == AUTO:
        micro, accumulation = values.get(MICRO), values.get(ACCUMULATION) or 1
        numbers = [number for number in (micro, accumulation) if isinstance(number, int | float)]
        values[TRAIN] = int(math.prod(numbers) * world) if len(numbers) == 2 else _MICRO * world
