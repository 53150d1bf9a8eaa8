"""The process that `bench.gpu.host` asks: one configuration, by the Trainer or in a loop, and what the host does."""

# pyright: basic, reportMissingImports=false

import itertools
import statistics
import time
from collections.abc import Iterator
from typing import Any

from bench.gpu.inside import answers, device, model, trainer, world


def _measure(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    record, number = asked["record"], asked["steps"]
    here = world.join()
    found = (trainer.steps if record["framework"] else _loop)(record, here, number)
    yield {**record, "world": world.size(), **model.versions(), **found}


def _loop(record: dict[str, Any], here: Any, number: int) -> dict[str, Any]:
    """The plainest training script: no framework, nothing is waited for between steps."""
    engine = model.engine_of(record, model.build(record, here))
    batch, ends = model.batch(record, here), []
    with trainer.Spent() as spent:
        for _ in range(number):
            for _ in range(record["accumulation"]):
                engine.backward(engine(**batch).loss)
                engine.step()
            ends.append(time.perf_counter())
        device.wait()
        ended = time.perf_counter()
    times = [after - before for before, after in itertools.pairwise(ends)]
    return {
        "step_seconds": times,
        "mean": (ended - ends[trainer.WARM_UP - 1]) / (number - trainer.WARM_UP),
        "median": statistics.median(times[trainer.WARM_UP - 1 :]),
        "host": spent.means(),
        "peak": device.peak(),
        **model.parameters(engine.module),
    }


answers.run(_measure)
