"""What a row of the matrix is, and the configuration that all rows vary."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.parallelism import ParallelDegrees

Json = dict[str, Any]

CPU: Json = {"device": "cpu"}
BF16: Json = {"bf16": {"enabled": True}}
ADAM: Json = {"type": "AdamW", "params": {"lr": 0.01}}


@dataclass(frozen=True)
class Row:
    """A configuration; `script` names what scripts/features.py does with it, `job` the job that it shares."""

    name: str
    config: Json
    script: str = "plain"
    job: str = "train"
    parallelism: ParallelDegrees = field(default_factory=ParallelDegrees)
    ranks: int = 2


@dataclass(frozen=True)
class Feature(Row):
    """Trains; `shows` are facts, measured on rank 0, that hold only if the feature is in force."""

    shows: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True)
class Refusal(Row):
    """DeepSpeed's engine refuses it in the words of `says`, and we at `path`.

    Where it is the script that decides, ours is a warning, or, where a path would say too much, nothing but `reason`.
    """

    job: str = "refuse"
    says: str = ""
    path: str | None = None
    level: Level = Level.ERROR
    reason: str = ""

    @property
    def refused_by_us(self) -> bool:
        return self.path is not None and self.level is Level.ERROR


def config(stage: int = 0, *, optimizer: Json | None = ADAM, zero: Json | None = None, **more: Any) -> Json:
    """Eight samples a rank and micro step, fp32, AdamW, but for what is given."""
    base: Json = {"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": stage, **(zero or {})}}
    return {**base, **({"optimizer": optimizer} if optimizer else {}), **more}


def scheduler(kind: str, **params: Any) -> Json:
    return {"scheduler": {"type": kind, "params": params}}


def by(kind: str, stage: int = 0, **params: Any) -> Json:
    return config(stage, optimizer={"type": kind, "params": params})


def split(ranks: int) -> Json:
    """Tensor parallelism over so many ranks, by rules for the layers of scripts/models.py."""
    column, row = ({"patterns": [rf".*{name}\.weight$"], "partition_type": kind} for name, kind in _SPLIT.items())
    rules = {"use_default_specs": False, "layer_specs": [column, row]}
    return {"tensor_parallel": {"autotp_size": ranks, "partition_config": rules}}


_SPLIT = {"up": "column", "down": "row"}
