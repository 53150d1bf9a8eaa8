"""A configuration's verdict, and what it says where."""

from typing import Any

from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.judgement import JudgementContext, VersionVerdict, validate
from deepspeed_operator.dsconfig.notes import written
from deepspeed_operator.dsconfig.versions import SUPPORTED

NEWEST = SUPPORTED[-1]
BATCH = {"train_batch_size": 64}
ADAM = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
CPU_OFFLOAD = {"offload_optimizer": {"device": "cpu"}}


def verdict_on(config: dict[str, Any], world: int = 8, version: str = NEWEST, **circumstances: Any) -> VersionVerdict:
    return validate(config, JudgementContext(world, version, **circumstances))


def places(verdict: VersionVerdict, level: Level) -> list[str]:
    return [written(note.path) for note in verdict.notes if note.level is level]


def said(verdict: VersionVerdict, place: str) -> str:
    return " ".join(f"{note.message} {note.fix}" for note in verdict.notes if written(note.path) == place)
