"""The process that `bench.gpu.timing` asks: one fabric, all configurations one after the other."""

# pyright: basic, reportMissingImports=false

import contextlib
import gc
import statistics
import time
import traceback
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from bench.gpu.inside import answers, collectives, device, model, world
from bench.gpu.inside.traffic import Counter

# Steps with a wait after each phase, and therefore without overlap.
_PHASED = 2
_LINEAR = functional.linear


def _measure(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    counter = Counter()
    here = world.join()
    about = {"fabric": asked["fabric"], "nodes": asked["nodes"], "world": world.size(), **model.versions()}
    for line in _lines(asked, here, counter):
        yield {**about, **line}


def _lines(asked: dict[str, Any], here: torch.device, counter: Counter) -> Iterator[dict[str, Any]]:
    if asked["calibrate"]:
        yield {"collectives": collectives.sweep(here, 2**30 if device.CUDA else 2**22)}
        _release()
    for record in asked["records"]:
        begun = time.perf_counter()
        try:
            found = _steps(record, here, asked, counter)
        except Exception as error:
            traceback.print_exc()
            found = {"failed": f"{type(error).__name__}: {error}"[:1000]}
        yield {**record, **found, "took": round(time.perf_counter() - begun, 1)}
        _release()


def _steps(record: dict[str, Any], here: torch.device, asked: dict[str, Any], counter: Counter) -> dict[str, Any]:
    engine = model.engine_of(record, model.build(record, here))
    batch, accumulation = model.batch(record, here), record["accumulation"]
    # Stage 3 records the order of modules in the first two steps.
    for _ in range(asked["warm_up"] - (record["stage"] < 3)):
        _step(engine, batch, accumulation)
    counter.begin()
    _step(engine, batch, accumulation)
    found = {"traffic": counter.end(), **model.parameters(engine.module)}
    # What was imported and built is no garbage, and looking through it now and then would take as long as a step.
    gc.collect()
    gc.freeze()
    times = [device.timed(lambda: _step(engine, batch, accumulation)) for _ in range(asked["timed"])]
    if times:
        samples = record["micro"] * accumulation * world.size()
        median = statistics.median(times)
        found |= {"step_seconds": times, "median": median, "samples_per_second": samples / median}
    if asked["calibrate"]:
        phases = [_phases(engine, batch, accumulation) for _ in range(_PHASED)]
        found["phases"] = [list(map(statistics.median, zip(*each, strict=True))) for each in zip(*phases, strict=True)]
    return {**found, "memory": device.most_reserved()}


def _step(engine: Any, batch: dict[str, Any], accumulation: int) -> None:
    for _ in range(accumulation):
        engine.backward(engine(**batch).loss)
        engine.step()


def _phases(engine: Any, batch: dict[str, Any], accumulation: int) -> list[list[float]]:
    """Seconds of forward pass, backward pass with its reduction, and optimizer step, of each micro step."""
    found: list[list[float]] = []
    for _ in range(accumulation):
        losses: list[Any] = []
        forward = device.timed(lambda losses=losses: losses.append(engine(**batch).loss))
        backward = device.timed(lambda losses=losses: engine.backward(losses.pop()))
        found.append([forward, backward, device.timed(engine.step)])
    return found


def _release() -> None:
    """Leave nothing of an engine that has ended to the next one.

    Take the memory from all tensors: hooks and cycles that nothing ends keep GiBs. And stage 3 has put a slower Python
    function in the place of torch's linear, which "will persist unless manually reset".
    """
    functional.linear = _LINEAR
    gc.unfreeze()
    gc.collect()
    for each in gc.get_objects():
        # Some tensors have no device, and some storages cannot be resized.
        with contextlib.suppress(RuntimeError):
            if type(each) in (torch.Tensor, torch.nn.Parameter) and each.device.type == "cuda":
                each.untyped_storage().resize_(0)
    gc.collect()
    if device.CUDA:
        torch.cuda.empty_cache()


answers.run(_measure)
