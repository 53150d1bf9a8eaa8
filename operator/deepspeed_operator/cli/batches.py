"""What a configuration leaves to a framework (auto), as a command line says it or a plan assumes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepspeed_operator.api.status import Batch, World
from deepspeed_operator.dsconfig.batch import ACCUMULATION, AUTO, MICRO, TRAIN
from deepspeed_operator.job.precision import Precision, undecided


@dataclass(frozen=True, slots=True)
class Filled:
    """The configuration as it is with these batch sizes; `is_frameworks`: they are not all in the file."""

    config: Mapping[str, Any]
    micro: int
    accumulation: int
    is_frameworks: bool = False


def filled(
    config: Mapping[str, Any], batch: Batch | None, world: World, micro: int | None, accumulation: int | None
) -> Filled | str:
    """Return the batch sizes of the file, those that it leaves open as they are given; or why they are not known."""
    known = batch or Batch()
    for option, given, said in (
        ("--micro-batch", micro, known.micro_per_gpu),
        ("--accumulation", accumulation, known.accumulation),
    ):
        if given is not None and said is not None:
            return f"{option} {given}: the file says {said}, change it there"
    here = micro or known.micro_per_gpu
    steps = accumulation or known.accumulation
    if here is None or steps is None:
        open_ = [name for name, value in (("--micro-batch N", here), ("--accumulation N", steps)) if value is None]
        return f"it leaves batch sizes to the framework: give {' and '.join(open_)}, as the ranks will have them"
    if micro is None and accumulation is None:
        return Filled(config, here, steps)
    samples = here * steps * world.data_parallel
    train = config.get(TRAIN, AUTO)
    if train not in (AUTO, samples):
        return f"{here} × {steps} on {world.data_parallel} ranks are {samples} samples, not {TRAIN} {train}"
    others = {key: value for key, value in config.items() if key != TRAIN or value != AUTO}
    return Filled({**others, MICRO: here, ACCUMULATION: steps}, here, steps, is_frameworks=True)


def contradiction(config: Mapping[str, Any], precision: Precision | None) -> str | None:
    """Return why a precision cannot be chosen for what the file says."""
    if precision is None:
        return None
    open_ = undecided(config)
    if not open_:
        return f"--precision {precision}: the file decides it, change it there"
    if precision is not Precision.FP32 and precision.value not in open_:
        return f"--precision {precision}: the file leaves only {' and '.join(open_)} to the framework"
    return None
