"""What a job will be like before anything of its steps is measured: by its GPUs' data sheet, and by a known network."""

from dataclasses import dataclass

from deepspeed_operator.job.data_sheets import Device
from deepspeed_operator.job.precision import precision_of
from deepspeed_operator.plan.advice.alternatives import Alternative, Circumstances, plan_of
from deepspeed_operator.plan.advice.recalibration import faster, measured_links
from deepspeed_operator.plan.memory.case import Case
from deepspeed_operator.plan.memory.fit import Fit, fit_of
from deepspeed_operator.plan.time.costs import assumed
from deepspeed_operator.plan.time.links import Bandwidth, Links
from deepspeed_operator.plan.time.step_time import StepTime


@dataclass(frozen=True, slots=True)
class Foreseen:
    """`time` of a step, None where a link is not known; `best`: what is so much faster that it is worth a word."""

    device: Device
    time: StepTime | None
    best: Alternative | None


def can_foresee(case: Case, nodes: int, preflight: int | None) -> bool:
    """Whether a step's time and memory follow from what is declared: of a network between nodes nothing is assumed."""
    model = case.model
    whole = model.shape is not None and model.usage.sequence is not None and not model.assumes("sequenceLength")
    return whole and (nodes == 1 or bool(preflight))


def foresee(case: Case, nodes: int, device: Device, preflight: int | None = None) -> Foreseen:
    """Return what is told of a job that can be foreseen; of alternatives, those that fit under any assumption."""
    links = measured_links(preflight, nodes, device) if preflight else Links(Bandwidth(device.interconnect), None)
    tokens = case.model.usage.sequence or 1
    precision = precision_of(case.setup)
    costs = assumed(case.model, device, links, tokens=tokens, precision=precision, framework=case.framework)
    around = Circumstances(case.model, case.world, nodes, case.version, costs, parallelism=case.parallelism)
    now = plan_of(case.config, case.micro, case.accumulation, around)
    if case.fit(device.memory).fit is Fit.NO:
        return Foreseen(device, now.time, None)  # what fits is another question
    best = (each for each in faster(case, now, around, known=True) if _fits(each, case, device))
    return Foreseen(device, now.time, next(best, None))


def _fits(alternative: Alternative, case: Case, device: Device) -> bool:
    plan = alternative.plan
    return fit_of(plan.setup, case.model, plan.micro, plan.accumulation, device.memory).fit is Fit.YES
