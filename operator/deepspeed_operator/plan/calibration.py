"""One measured run of a model on a fabric → what a step's parts cost there.

The run is JSON lines, as bench/gpu writes them, in seconds, and bytes of a group's whole data:
  {"fabric": "tcp8", "world": 2, "collectives": [{"collective": "all-reduce", "bytes": 268435456, "seconds": 0.12}, …]}
  {"fabric": "tcp8", "world": 2, "deepspeed": "0.19.8", "ds_config": {…}, "model_config": {…}, "micro": 4,
   "accumulation": 2, "step_seconds": [1.9, …], "phases": [[forward, backward, step] of each micro step]}
Needed are the sweep and steps with accumulation 2 at stages 0, 2 and 3; two of stage 3 with other limits tell what a
gather costs apart from a module.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
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
    runs = [_run(line) for line in mine if "phases" in line]
    sample = _sample(runs)
    reduction: dict[Work, float] = {Work.GATHERED: 0.0}
    update: dict[Work, float] = {}
    for work in Work:
        run = next((each for each in runs if each.work is work), None)
        if run is None:
            raise UnusableCalibrationError(f"fabric {fabric}: nothing was measured at {work}")
        update[work] = max(0.0, run.step - _sent(run, sweep, after=True)) / updated(run.setup, run.model)
        if work is not Work.GATHERED:
            copied = reductions(run.setup, run.accumulation) * run.model.trained
            reduction[work] = _rest(run, sample, sweep) / copied
    gather, module, gathering = _stage_3([run for run in runs if run.work is Work.GATHERED], sample, sweep)
    first = runs[0]
    facts = (
        Fact("fabric", fabric, Source.MEASURED),
        Fact("forward and backward pass of a sample, s", round(sample, 5), Source.MEASURED),
        Fact("optimizer step at stage 0, s", round(update[Work.WHOLE] * first.model.trained, 4), Source.MEASURED),
        Fact("stage 3's work for a module, s", round(module, 6), Source.MEASURED),
    )
    link: Link = sweep
    costs = Costs(sample, reduction, update, gather, module, Links(link, link), facts, gathering, waits=True)
    return Calibration(fabric, costs, first.model)


def _sweep(lines: Sequence[Mapping[str, Any]]) -> Sweep:
    points: dict[str, list[tuple[float, float]]] = {}
    swept = [line for line in lines if "collectives" in line]
    for each in (each for line in swept for each in line["collectives"]):
        points.setdefault(str(each["collective"]), []).append((float(each["bytes"]), float(each["seconds"])))
    if len(points.get(ALL_REDUCE, ())) < 2 or any(len(each) < 2 for each in points.values()):
        raise UnusableCalibrationError("each collective is needed at two sizes at least, and all-reduce among them")
    return Sweep(int(swept[0]["world"]), {name: tuple(sorted(each)) for name, each in points.items()})


def _run(line: Mapping[str, Any]) -> _Run:
    model = from_hugging_face(line["model_config"])
    setup = setup_of(line["ds_config"], int(line["world"]), str(line["deepspeed"]))
    accumulation, phases = int(line["accumulation"]), line["phases"]
    step = sum(step for _, _, step in phases)
    return _Run(
        setup=setup,
        model=model,
        traffic=communication(setup, model, accumulation),
        micro=int(line["micro"]),
        accumulation=accumulation,
        first=sum(phases[0][:2]),
        # Of whole steps, which were not waited for phase by phase, and more of which were measured.
        passes=median(line["step_seconds"]) - step,
        step=step,
    )


def _sample(runs: Sequence[_Run]) -> float:
    """Seconds of a sample's two passes: at stage 0, micro steps before the last one only compute."""
    for run in runs:
        if run.work is Work.WHOLE and run.accumulation > 1:
            return run.first / run.micro
    raise UnusableCalibrationError("stage 0 with accumulation 2 is needed: its first micro step only computes")


def _sent(run: _Run, sweep: Sweep, *, after: bool) -> float:
    return sum(sweep.seconds(term) for term in run.traffic.terms if term.after is after)


def _rest(run: _Run, sample: float, sweep: Sweep) -> float:
    """Seconds of the passes that are neither computing nor sending, where nothing overlaps."""
    return run.passes - run.accumulation * run.micro * sample - _sent(run, sweep, after=False)


def _stage_3(runs: Sequence[_Run], sample: float, sweep: Sweep) -> tuple[float, float, float]:
    """Return the seconds of a gathered tensor and of a visited module, and how well it sends while it computes.

    Where the network is what it waits for, there is nothing to learn of the former; elsewhere, nothing of the latter.
    """
    sent, passes = (
        sum(each) for each in zip(*((_sent(run, sweep, after=False), run.passes) for run in runs), strict=True)
    )
    if sent > _NETWORK_BOUND * passes:
        return 0.0, 0.0, passes / sent
    counted = [
        (*visits(run.setup, run.model, run.accumulation), run.passes - run.accumulation * run.micro * sample)
        for run in runs
    ]
    tensors, modules, rest = counted[0]
    for others, visited, more in counted[1:]:
        determinant = tensors * visited - others * modules
        if determinant:
            gather = (rest * visited - more * modules) / determinant
            return gather, (rest - tensors * gather) / modules, 1.0
    return 0.0, rest / modules, 1.0
