"""A training script that saves when it is told to end, or of which rank 1 hangs after some steps.

    python3 -m bench.gpu.inside.survived CASE GATE CHECKPOINTS

It touches no GPU before the file GATE is there. What a case is says bench/gpu/cases.py. A rank hangs once: after a
restart all of them train on.
"""

# pyright: basic, reportMissingImports=false

import itertools
import json
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

from bench.gpu.inside.marks import mark, rank

mark("started")
import torch  # noqa: E402
import torch.distributed  # noqa: E402
import torch.utils.flop_counter  # noqa: E402

from bench.gpu import cases  # noqa: E402
from bench.gpu.inside import device, model, world  # noqa: E402

mark("imported")
CASE, GATE, CHECKPOINTS = cases.named(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
LEFT = GATE.with_suffix(".left")
LAGGARD = 1


class Training:
    """The engine with its batch."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.here = world.join()
        self.engine = model.engine_of(record, model.build(record, self.here))
        self.batch = model.batch(record, self.here)
        mark("initialized")
        if CASE.loads and self.engine.load_checkpoint(str(CHECKPOINTS))[0] is not None:
            mark("loaded")
        self.ends: list[float] = []

    def step(self) -> None:
        loss = self.engine(**self.batch).loss
        self.engine.backward(loss)
        self.engine.step()
        loss.item()
        self.ends.append(time.perf_counter())
        if len(self.ends) == 1:
            mark("stepped")

    def flops(self) -> int:
        """Of another step of this rank, as PyTorch counts what is really multiplied; that takes longer."""
        with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
            self.step()
        return counter.get_total_flops()

    def any_rank(self, value: bool) -> bool:
        found = torch.tensor([float(value)], device=self.here)
        torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)
        return bool(found.item())


def until_told(training: Training) -> None:
    """Train, then save within the grace: all ranks after the same step."""
    told: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(time.time()))
    flops = training.flops()  # of the first step, which nobody times
    while not training.any_rank(bool(told)):
        training.step()
        if len(training.ends) == CASE.steps:
            seconds = [after - before for before, after in itertools.pairwise(training.ends)]
            about = {"step_seconds": seconds, "flops": flops, **model.versions()}
            if rank() == 0:
                GATE.with_suffix(".timed").write_text(json.dumps({**about, **model.parameters(training.engine.module)}))
            mark("ready")
    mark("saving")
    training.engine.save_checkpoint(str(CHECKPOINTS))
    mark("saved")
    sys.exit(128 + signal.SIGTERM)


def asleep() -> None:
    time.sleep(3600)


def spinning() -> None:
    """C code that holds the interpreter's lock."""
    re.match("(a+)+$", "a" * 64 + "b")


def until_one_hangs(training: Training) -> None:
    hangs = not LEFT.exists()
    while True:
        training.step()
        if len(training.ends) != CASE.steps:
            continue
        mark("ready")
        if not hangs:
            time.sleep(3600)  # it has shown what it had to, and others use these GPUs
        if rank() == LAGGARD and CASE.how != "stopped":
            LEFT.touch()
            mark("left")
            {"asleep": asleep, "spinning": spinning}[CASE.how]()
        if CASE.meets:
            torch.distributed.all_reduce(torch.ones(1, device=training.here))
            device.wait()


def main() -> None:
    while not GATE.exists():
        time.sleep(0.05)
    mark("begun")
    training = Training(CASE.configuration().record())
    if CASE.how == cases.TOLD:
        until_told(training)
    until_one_hangs(training)


if __name__ == "__main__":
    main()
