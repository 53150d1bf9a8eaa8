"""One measured run of a model on a fabric → what a step's parts cost there.

The run is JSON lines, as bench/gpu writes them, in seconds, and bytes of a group's whole data:
  {"fabric": "tcp8", "world": 2, "collectives": [{"collective": "all-reduce", "bytes": 268435456, "seconds": 0.12}, …]}
  {"fabric": "tcp8", "world": 2, "deepspeed": "0.19.8", "ds_config": {…}, "model_config": {…}, "micro": 4,
   "accumulation": 2, "step_seconds": [1.9, …], "phases": [[forward, backward, step] of each micro step]}
Lines about the same configuration are one measurement: their medians count. Needed are the sweep and steps with
accumulation 2 at stages 0, 2 and 3. Another micro batch at stage 0 tells what of its passes is not its samples', at
stage 3 how much of them goes on behind its own work; other limits at stage 3 tell what a gather costs apart from a
module, single roots what their reduction costs.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, Final

from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.job.precision import Precision, precision_of
from deepspeed_operator.job.provenance import Fact, Source
from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.model.architecture import Model
from deepspeed_operator.plan.model.hugging_face import from_hugging_face
from deepspeed_operator.plan.time.costs import Costs, Work, work_of
from deepspeed_operator.plan.time.links import Link, Links, Sweep
from deepspeed_operator.plan.time.step_time import reductions, updated, visits
from deepspeed_operator.plan.traffic.collectives import ALL_REDUCE
from deepspeed_operator.plan.traffic.communication import Traffic, communication

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
                (run.passes - _computing(run, launch, sample) - _sent(run, sweep, after=False))
                / (reductions(run.setup, run.accumulation) * run.model.trained)
                for run in same
            )
    gathered = [run for run in runs if run.work is Work.GATHERED]
    stage_3 = _stage_3(gathered, sweep, [_computing(run, launch, sample) for run in gathered])
    first = runs[0]
    facts = (
        Fact("fabric", fabric, Source.MEASURED),
        Fact("forward and backward pass of a sample, s", round(sample, 5), Source.MEASURED),
        Fact("beside that for each micro step, s", round(launch, 5), Source.MEASURED),
        Fact("optimizer step at stage 0, s", round(update[Work.WHOLE] * first.model.trained, 4), Source.MEASURED),
        Fact("stage 3's work for a module, s", round(stage_3["module"], 6), Source.MEASURED),
    )
    link: Link = sweep
    links = Links(link, link)
    precision = precision_of(first.setup)
    costs = Costs(
        sample,
        reduction,
        update,
        links=links,
        facts=facts,
        waits=True,
        launch=launch,
        slower={},
        measured_in=precision,
        half=Precision.FP16 if precision is Precision.FP16 else Precision.BF16,
        gather=stage_3["gather"],
        module=stage_3["module"],
        gathering=stage_3["gathering"],
        hides=stage_3["hides"],
    )
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


def _computing(run: _Run, launch: float, sample: float) -> float:
    """Seconds of the passes in which only the GPU's computing is waited for."""
    return run.accumulation * (launch + run.micro * sample)


def _stage_3(runs: Sequence[_Run], sweep: Sweep, computing: Sequence[float]) -> dict[str, float]:
    """Return the seconds of a gathered tensor and of a visited module, and how well it sends and works as it computes.

    Where the network is what it waits for, there is nothing to learn of the former; elsewhere, nothing of sending.
    """
    sent, passes = (
        sum(each) for each in zip(*((_sent(run, sweep, after=False), run.passes) for run in runs), strict=True)
    )
    if sent > _NETWORK_BOUND * passes:
        return {"gather": 0.0, "module": 0.0, "gathering": passes / sent, "hides": 1.0}
    visited = [visits(run.setup, run.model, run.accumulation) for run in runs]
    hides = _hidden(runs, visited, computing)
    work = [run.passes - (1 - hides) * seconds for run, seconds in zip(runs, computing, strict=True)]
    gather, module = _gather_and_module(visited, work)
    return {"gather": gather, "module": module, "gathering": 1.0, "hides": hides}


def _hidden(runs: Sequence[_Run], visited: Sequence[tuple[int, int]], computing: Sequence[float]) -> float:
    """Return the share of more computing by which passes with the same gathers do not grow; all, where none are."""
    for run, same, seconds in zip(runs[1:], visited[1:], computing[1:], strict=True):
        if same == visited[0] and seconds != computing[0]:
            return min(1.0, max(0.0, 1 - (run.passes - runs[0].passes) / (seconds - computing[0])))
    return 1.0


def _gather_and_module(visited: Sequence[tuple[int, int]], work: Sequence[float]) -> tuple[float, float]:
    tensors, modules = visited[0]
    for (others, more), seconds in zip(visited[1:], work[1:], strict=True):
        determinant = tensors * more - others * modules
        if determinant:
            gather = (work[0] * more - seconds * modules) / determinant
            return gather, (work[0] - tensors * gather) / modules
    return 0.0, work[0] / modules
