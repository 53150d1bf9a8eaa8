"""Microseconds to judge a configuration: by one version's schema, and by all of them where none is declared.

PYTHONPATH=operator python bench/validate.py [DIRECTORY]     with ds_config files, else the article's configuration
"""

import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepspeed_operator.dsconfig.judgement import JudgementContext, validate
from deepspeed_operator.dsconfig.schema import schema_of
from deepspeed_operator.dsconfig.source import parse_config
from deepspeed_operator.dsconfig.versions import SUPPORTED

_ROUNDS = 5
_EXAMPLE: Mapping[str, Any] = {
    "train_batch_size": 64,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1000}},
    "fp16": {"enabled": True, "loss_scale": 0},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "reduce_scatter": True},
    "gradient_clipping": 1.0,
}


def main() -> None:
    configurations = list(_configurations(Path(sys.argv[1]))) if len(sys.argv) > 1 else [_EXAMPLE]
    began = time.perf_counter()
    for version in SUPPORTED:
        schema_of(version)
    print(f"{(time.perf_counter() - began) / len(SUPPORTED) * 1000:8.1f} ms to load a version's schema, once")
    for label, version in (("DeepSpeed " + SUPPORTED[-1], SUPPORTED[-1]), ("any version", None)):
        circumstances = JudgementContext(8, version)
        first = [_microseconds(config, circumstances) for config in configurations]
        again = [min(_microseconds(config, circumstances) for _ in range(_ROUNDS)) for config in configurations]
        numbers = f"median {statistics.median(again):.0f} µs, worst {max(again):.0f} µs, first time {max(first):.0f} µs"
        print(f"{label}: {len(configurations)} configurations, {numbers}")


def _configurations(directory: Path) -> list[Mapping[str, Any]]:
    read = [
        parse_config(path.read_text(encoding="utf-8", errors="replace")) for path in sorted(directory.glob("*__*.json"))
    ]
    return [values for values in read if isinstance(values, dict)]


def _microseconds(config: Mapping[str, Any], circumstances: JudgementContext) -> float:
    began = time.perf_counter()
    validate(config, circumstances)
    return (time.perf_counter() - began) * 1e6


if __name__ == "__main__":
    main()
