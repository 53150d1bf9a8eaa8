"""Words that all parts of a plan are written with."""

from typing import Final

from deepspeed_operator.cli.planned import Estimate, Planned
from deepspeed_operator.job.units import GIB
from deepspeed_operator.plan.advice.alternatives import Plan
from deepspeed_operator.plan.memory.fit import ERROR, Fit

UNLESS_FROZEN: Final = "too large if all parameters train"
DOUBTS: Final = {
    "may fit": f"as predicted, or within the prediction's error of {ERROR:.0%}",
    "unknown": "too large as predicted, and what is assumed could need less",
}


def speed(plan: Plan) -> str:
    """Samples a second, both bounds where there are two; empty where no time is known."""
    if plan.time is None or plan.samples_per_second is None:
        return ""
    slow, fast = (f"{plan.samples / each:.3g}" for each in (plan.time.seconds, plan.time.least))
    return f"{slow if slow == fast else f'{slow} to {fast}'} samples/s"


def word(estimate: Estimate) -> str:
    """Whether it fits, empty where the GPU's memory is not known."""
    if estimate.fit is None:
        return ""
    if estimate.fits is Fit.UNKNOWN:
        return "may fit" if estimate.may_fit else UNLESS_FROZEN if estimate.fit.unless_frozen else "unknown"
    return "fits" if estimate.fits is Fit.YES else "too large"


def needed(planned: Planned, estimate: Estimate) -> str:
    """Memory of a GPU, a lower bound where what grows with the batch is not known."""
    at_least = "" if planned.counts_all_memory else "≥ "
    return at_least + gib(estimate.plan.memory.needed)


def gib(size: float) -> str:
    return f"{size / GIB:,.1f} GiB"
