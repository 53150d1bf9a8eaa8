"""The process that `bench.gpu.memory` asks: one configuration, its memory after each phase."""

# pyright: basic, reportMissingImports=false

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.gpu.inside import answers, device, model, world
from bench.gpu.phases import phases_of

STEPS = 3


def _measure(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    here = world.join()
    trace: list[list[Any]] = []

    def note(step: int, micro: int, phase: str) -> None:
        device.wait()
        trace.append([step, micro, phase, device.peak(), device.allocated()])
        device.reset_peak()

    device.reset_peak()
    built = model.build(record, here)
    after_build = device.allocated()
    device.reset_peak()
    engine = model.engine_of(record, built)
    note(0, 0, "init")
    host = {"init": device.host()}
    _train(engine, record, here, note)
    host["step"] = device.host()
    if record["save"]:
        _save(engine, note)
        host["save"] = device.host()
    mine = {
        "trace": trace,
        "built": after_build,
        "reserved": device.most_reserved(),
        "outside": device.outside(),
        "host": host,
    }
    ranks = world.gathered(mine)
    found = {**_summary(record, ranks), **_classes(engine), **model.parameters(built), **model.versions()}
    yield {**record, **found, "ranks": ranks}


def _train(engine: Any, record: dict[str, Any], here: Any, note: Any) -> None:
    for step in range(1, STEPS + 1):
        for micro in range(1, record["accumulation"] + 1):
            loss = engine(**model.batch(record, here)).loss
            note(step, micro, "forward")
            engine.backward(loss)
            note(step, micro, "backward")
            del loss
            engine.step()
            note(step, micro, "step")


def _save(engine: Any, note: Any) -> None:
    directory = Path(tempfile.gettempdir()) / f"bench-checkpoint-{os.environ['MASTER_PORT']}"
    engine.save_checkpoint(str(directory))
    note(STEPS, 0, "save")
    world.gathered(None)
    if world.rank() == 0:
        shutil.rmtree(directory)


def _summary(record: dict[str, Any], ranks: list[dict[str, Any]]) -> dict[str, Any]:
    phases = phases_of(ranks, record["accumulation"])
    highest = max(phases, key=lambda phase: phases[phase]["peak"])
    return {
        "phases": phases,
        "peak": phases[highest]["peak"],
        "phase": highest,
        "reserved": max(each["reserved"] for each in ranks),
        "outside": max(each["outside"] for each in ranks),
    }


def _classes(engine: Any) -> dict[str, str]:
    return {
        "zero_wrapper_class": type(engine.optimizer).__name__,
        "optimizer_class": type(engine.basic_optimizer).__name__,
    }


answers.run(_measure)
