"""An engine beside the configuration that was accepted for it."""

from collections.abc import Iterator, Mapping
from typing import Any

from deepspeed_operator.api.engine_report import Engine
from deepspeed_operator.api.status import Batch, Finding, Level, World
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.batch import AUTO

DIFFERS = "The engine differs from what was accepted: "
IGNORED = "is ignored: the script passes "


def engine_findings(
    engine: Engine, config: Mapping[str, Any] | None, batch: Batch | None, world: World, path: str
) -> list[Finding]:
    """Return warnings about what the engine does otherwise than its job says; what is `auto`, or not said, may be any.

    `config` is None where the job has none, or it is not known; `path` is where the job has it.
    """
    found: list[Finding] = []
    differences = list(_differences(engine, config, batch or Batch(), world))
    if differences:
        fix = "Pass the file of DEEPSPEED_CONFIG to deepspeed.initialize or the framework, or write here what is meant."
        message = f"{DIFFERS}{', '.join(differences)}."
        found.append(Finding(level=Level.WARNING, path=path, message=message, fix=fix))
    if engine.own_optimizer and _type(config, "optimizer"):
        message = f"{IGNORED}an optimizer of its own ({engine.optimizer}) to deepspeed.initialize."
        fix = "Pass no optimizer to deepspeed.initialize, or remove this section."
        found.append(Finding(level=Level.WARNING, path=f"{path}.optimizer", message=message, fix=fix))
    if engine.own_scheduler and _type(config, "scheduler"):
        message = f"{IGNORED}a scheduler of its own to deepspeed.initialize."
        fix = "Pass no lr_scheduler to deepspeed.initialize, or remove this section."
        found.append(Finding(level=Level.WARNING, path=f"{path}.scheduler", message=message, fix=fix))
    return found


def _differences(engine: Engine, config: Mapping[str, Any] | None, batch: Batch, world: World) -> Iterator[str]:
    pairs: list[tuple[str, object, object]] = [("world", engine.world, world.size)]
    if config is not None:
        pairs += [("ZeRO stage", engine.stage, _stage(config)), ("precision", engine.precision, _precision(config))]
        pairs += [
            ("micro batch", engine.micro_batch, batch.micro_per_gpu),
            ("accumulation", engine.accumulation, batch.accumulation),
            ("train batch", engine.train_batch, batch.train),
        ]
    for name, now, accepted in pairs:
        if now is not None and accepted is not None and now != accepted:
            yield f"{name} {now} (accepted: {accepted})"
    optimizer = _type(config, "optimizer")
    if optimizer and engine.optimizer and not engine.own_optimizer and engine.optimizer.lower() != optimizer.lower():
        yield f"optimizer {engine.optimizer} (accepted: {optimizer})"


def _stage(config: Mapping[str, Any]) -> int | None:
    section = config.get("zero_optimization")
    stage = int(section) if isinstance(section, bool) else object_at(section).get("stage", 0)
    return stage if isinstance(stage, int) else None


def _precision(config: Mapping[str, Any]) -> str | None:
    """Return what is computed in; None where a framework decides."""
    enabled = {name: object_at(config.get(name)).get("enabled", False) for name in ("bf16", "bfloat16", "fp16")}
    if AUTO in enabled.values():
        return None
    return next((name.replace("bfloat16", "bf16") for name, on in enabled.items() if on is True), "fp32")


def _type(config: Mapping[str, Any] | None, section: str) -> str | None:
    name = object_at(config, section).get("type")
    return name if isinstance(name, str) and name != AUTO else None
