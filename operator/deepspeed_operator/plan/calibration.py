"""One measured run of a model on a fabric → what a step's parts cost there.

The run is JSON lines, as bench/gpu writes them, in seconds, and bytes of a group's whole data:
  {"fabric": "tcp8", "world": 2, "collectives": [{"collective": "all-reduce", "bytes": 268435456, "seconds": 0.12}, …]}
  {"fabric": "tcp8", "world": 2, "deepspeed": "0.19.8", "ds_config": {…}, "model_config": {…}, "micro": 4,
   "accumulation": 2, "step_seconds": [1.9, …], "phases": [[forward, backward, step] of each micro step]}
Lines about the same configuration are one measurement: their medians count. Needed are the sweep and steps with
accumulation 2 at stages 0, 2 and 3. Another micro batch at stage 0 tells what of its passes is not its samples', other
limits at stage 3 what a gather costs apart from a module, single roots what their reduction costs.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, Final

from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.plan.communication import Traffic, communication
from deepspeed_operator.plan.costs import Costs, Work, work_of
from deepspeed_operator.plan.links import Link, Links, Sweep
from deepspeed_operator.plan.model import Fact, Model, Source, from_hugging_face
from deepspeed_operator.plan.reading import setup_of
from deepspeed_operator.plan.steptime import reductions, updated, visits
from deepspeed_operator.plan.terms import ALL_REDUCE

# From this share of the passes on, sending is what stage 3 waits for.
_NETWORK_BOUND: Final = 0.8


class UnusableCalibrationError(ValueError):
    """What was measured does not tell what is needed."""


@dataclass(frozen=True)
class _Run:
    """Seconds of a step: `first` of the first micro step's passes, `passes` of all, `step` of what comes after them."""

    setup: Setup
    model: Model
    traffic: Traffic
    micro: int
    accumulation: int
    first: float
    passes: float
    step: float

    @property
    def work(self) -> Work:
        return work_of(self.setup)


@dataclass(frozen=True)
class Calibration:
    """`fabric` is the link that was measured."""

    fabric: str
    costs: Costs
    model: Model


def fabrics(lines: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of the fabrics that were measured."""
    return tuple(dict.fromkeys(str(line["fabric"]) for line in lines if "fabric" in line))


def calibrated(lines: Sequence[Mapping[str, Any]], fabric: str) -> Calibration:
    """Return what the lines about a fabric tell."""
    mine = [line for line in lines if line.get("fabric") == fabric]
    sweep = _sweep(mine)
    runs = list(_runs([line for line in mine if "phases" in line]))
    launch, sample = _passes(runs)
    reduction: dict[Work, float] = {Work.GATHERED: 0.0}
    update: dict[Work, float] = {}
    for work in Work:
        same = [run for run in runs if run.work is work]
        if not same and work is Work.ROOTED:
            reduction[work], update[work] = reduction[Work.DIVIDED], update[Work.DIVIDED]
            continue
        if not same:
            raise UnusableCalibrationError(f"fabric {fabric}: nothing was measured at {work}")
        update[work] = mean(
            max(0.0, run.step - _sent(run, sweep, after=True)) / updated(run.setup, run.model) for run in same
        )
        if work is not Work.GATHERED:
            reduction[work] = mean(
                (_beside_computing(run, launch, sample) - _sent(run, sweep, after=False))
                / (reductions(run.setup, run.accumulation) * run.model.trained)
                for run in same
            )
    gathered = [run for run in runs if run.work is Work.GATHERED]
    gather, module, gathering = _stage_3(gathered, sweep, [_beside_computing(run, launch, sample) for run in gathered])
    first = runs[0]
    facts = (
        Fact("fabric", fabric, Source.MEASURED),
        Fact("forward and backward pass of a sample, s", round(sample, 5), Source.MEASURED),
        Fact("beside that for each micro step, s", round(launch, 5), Source.MEASURED),
        Fact("optimizer step at stage 0, s", round(update[Work.WHOLE] * first.model.trained, 4), Source.MEASURED),
        Fact("stage 3's work for a module, s", round(module, 6), Source.MEASURED),
    )
    link: Link = sweep
    links = Links(link, link)
    costs = Costs(sample, reduction, update, gather, module, links, facts, gathering, waits=True, launch=launch)
    return Calibration(fabric, costs, first.model)


def _sweep(lines: Sequence[Mapping[str, Any]]) -> Sweep:
    points: dict[str, dict[float, list[float]]] = {}
    swept = [line for line in lines if "collectives" in line]
    for each in (each for line in swept for each in line["collectives"]):
        sizes = points.setdefault(str(each["collective"]), {})
        sizes.setdefault(float(each["bytes"]), []).append(float(each["seconds"]))
    if len(points.get(ALL_REDUCE, ())) < 2 or any(len(each) < 2 for each in points.values()):
        raise UnusableCalibrationError("each collective is needed at two sizes at least, and all-reduce among them")
    medians = {
        name: tuple((size, median(seconds)) for size, seconds in sorted(sizes.items()))
        for name, sizes in points.items()
    }
    return Sweep(int(swept[0]["world"]), medians)


def _runs(lines: Sequence[Mapping[str, Any]]) -> Iterator[_Run]:
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        alike.setdefault(json.dumps([line["ds_config"], line["micro"], line["accumulation"]]), []).append(line)
    for each in alike.values():
        yield _run(each)


def _run(lines: Sequence[Mapping[str, Any]]) -> _Run:
    """Return the medians of all lines about a configuration."""
    line = lines[0]
    model = from_hugging_face(line["model_config"])
    setup = setup_of(line["ds_config"], int(line["world"]), str(line["deepspeed"]))
    accumulation = int(line["accumulation"])
    phases = [
        [median(seconds) for seconds in zip(*micro_steps, strict=True)]
        for micro_steps in zip(*(each["phases"] for each in lines), strict=True)
    ]
    step = sum(step for _, _, step in phases)
    return _Run(
        setup=setup,
        model=model,
        traffic=communication(setup, model, accumulation),
        micro=int(line["micro"]),
        accumulation=accumulation,
        first=sum(phases[0][:2]),
        # Of whole steps, which were not waited for phase by phase, and more of which were measured.
        passes=median(seconds for each in lines for seconds in each["step_seconds"]) - step,
        step=step,
    )


def _passes(runs: Sequence[_Run]) -> tuple[float, float]:
    """Seconds of a micro step's two passes whatever its samples, and of each sample: a line through what was measured.

    At stage 0, micro steps before the last one only compute.
    """
    times = dict(sorted((run.micro, run.first) for run in runs if run.work is Work.WHOLE and run.accumulation > 1))
    if not times:
        raise UnusableCalibrationError("stage 0 with accumulation 2 is needed: its first micro step only computes")
    (few, less), (many, more) = next(iter(times.items())), list(times.items())[-1]
    if few == many:
        return 0.0, less / few
    sample = (more - less) / (many - few)
    launch = less - few * sample
    return (launch, sample) if launch > 0 else (0.0, less / few)


def _sent(run: _Run, sweep: Sweep, *, after: bool) -> float:
    return sum(sweep.seconds(term) for term in run.traffic.terms if term.after is after)


def _beside_computing(run: _Run, launch: float, sample: float) -> float:
    """Seconds of the passes that are not computing."""
    return run.passes - run.accumulation * (launch + run.micro * sample)


def _stage_3(runs: Sequence[_Run], sweep: Sweep, beside: Sequence[float]) -> tuple[float, float, float]:
    """Return the seconds of a gathered tensor and of a visited module, and how well it sends while it computes.

    Where the network is what it waits for, there is nothing to learn of the former; elsewhere, nothing of the latter.
    """
    sent, passes = (
        sum(each) for each in zip(*((_sent(run, sweep, after=False), run.passes) for run in runs), strict=True)
    )
    if sent > _NETWORK_BOUND * passes:
        return 0.0, 0.0, passes / sent
    counted = [
        (*visits(run.setup, run.model, run.accumulation), seconds) for run, seconds in zip(runs, beside, strict=True)
    ]
    tensors, modules, rest = counted[0]
    for others, visited, more in counted[1:]:
        determinant = tensors * visited - others * modules
        if determinant:
            gather = (rest * visited - more * modules) / determinant
            return gather, (rest - tensors * gather) / modules, 1.0
    return 0.0, rest / modules, 1.0
