"""An engine beside the configuration that was accepted for it."""

from collections.abc import Iterator, Mapping
from typing import Any

from deepspeed_operator.api.engine_report import Engine
from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.status import Batch, Finding, World
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.batch import AUTO
from deepspeed_operator.dsconfig.setup import written_stage


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
        message = f"The engine differs from what was accepted: {', '.join(differences)}."
        found.append(warning(path, Code.ENGINE_DIFFERS, message, fix))
    if engine.own_optimizer and _type(config, "optimizer"):
        message = f"is ignored: the script passes an optimizer of its own ({engine.optimizer}) to deepspeed.initialize."
        fix = "Pass no optimizer to deepspeed.initialize, or remove this section."
        found.append(warning(f"{path}.optimizer", Code.SECTION_REPLACED, message, fix))
    if engine.own_scheduler and _type(config, "scheduler"):
        message = "is ignored: the script passes a scheduler of its own to deepspeed.initialize."
        fix = "Pass no lr_scheduler to deepspeed.initialize, or remove this section."
        found.append(warning(f"{path}.scheduler", Code.SECTION_REPLACED, message, fix))
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
    stage = written_stage(config)
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
