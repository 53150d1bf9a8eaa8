"""What was measured under the Trainer beside what was predicted, and what one stage's steps told of another's."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench.gpu.expectations import VERSION, WORLD, setup_and_model
from bench.gpu.frameworks import named
from bench.gpu.trainer import GPU, predicted
from deepspeed_operator.plan.advice.alternatives import Circumstances, plan_of
from deepspeed_operator.plan.advice.measured_step import split
from deepspeed_operator.plan.time.costs import assumed
from deepspeed_operator.plan.time.links import Bandwidth, Links

Record = Mapping[str, Any]


def seconds_of(record: Record) -> float:
    """Seconds of a step, the mean of the 6th and later ones."""
    return record["mean"]


def promised(record: Record, other: Record) -> float | None:
    """Seconds of the other configuration's step by what the first one's took."""
    _, model = setup_and_model(record)
    links = Links(Bandwidth(GPU.interconnect), None)
    costs = assumed(model, GPU, links, tokens=record["sequence"], framework=True)
    around = Circumstances(model, WORLD, 1, VERSION, costs)
    now = plan_of(record["ds_config"], record["micro"], record["accumulation"], around)
    found = split(now, around, seconds_of(record))
    if found is None:
        return None
    around = Circumstances(model, WORLD, 1, VERSION, found[1])
    time = plan_of(other["ds_config"], other["micro"], other["accumulation"], around).time
    return time.seconds if time is not None else None


def pairs(records: Sequence[Record]) -> Iterator[tuple[Record, Record]]:
    """Configurations of one model and batch that differ in their stage: the one with the higher stage first."""
    for one, other in itertools.permutations(records, 2):
        same = all(one[name] == other[name] for name in ("model", "micro", "accumulation"))
        if same and one["stage"] > other["stage"]:
            yield one, other


def steps(records: Sequence[Record], said: Iterable[Record]) -> Iterator[tuple[Any, ...]]:
    """Yield the cells of a row for each configuration."""
    expected = {each["name"]: each for each in said}
    for record in records:
        before, now = expected[record["name"]], predicted(named(record["name"]))
        took, peak = seconds_of(record), record["peak"]
        yield (
            record["name"],
            f"{took:.3f}",
            *(f"{each['seconds']:.3f} ({each['seconds'] / took - 1:+.0%})" for each in (before, now)),
            f"{now['host']:.3f}",
            f"{peak / 2**30:.2f}",
            f"{before['memory'] / 2**30:.2f} ({before['memory'] / peak - 1:+.1%})",
        )


def stages(records: Sequence[Record]) -> Iterator[tuple[Any, ...]]:
    """Yield the cells of a row for each pair of stages."""
    for one, other in pairs(records):
        told, took = promised(one, other), seconds_of(other)
        if told is not None:
            yield one["name"], other["name"], f"{told:.3f}", f"{took:.3f}", f"{told / took - 1:+.0%}"
