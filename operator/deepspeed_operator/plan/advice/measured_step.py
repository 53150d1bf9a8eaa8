"""A measured step, taken apart: how fast host and GPU are by it.

The larger of host and GPU is what a step takes: it tells how fast that one is. Of the other it tells only that it takes
no longer, so that it stays as assumed. Where the GPU is the larger one, as much of the step as may be is taken for
computing, which no other configuration of the same batch avoids: a gain is rather larger than said.
"""

from dataclasses import replace
from typing import Final

from deepspeed_operator.plan.advice.alternatives import Circumstances, Plan
from deepspeed_operator.plan.time.costs import Costs, Work, work_of
from deepspeed_operator.plan.time.launching import Host
from deepspeed_operator.plan.time.step_time import StepTime, overlaps, step_time

# Of the assumed one, a host beyond any.
_SLOWEST: Final = 64.0
_HALVINGS: Final = 60


def split(now: Plan, around: Circumstances, seconds: float) -> tuple[StepTime, Costs] | None:
    """Return the parts of the measured step, and the costs that they tell of; None where they contradict each other."""
    time = now.time
    assert time is not None, "the links that it needs are known"
    # What is sent while the passes compute may cost nothing: then it counts as computing, of which nothing is gained.
    hidden = overlaps(now.setup) or time.hidden > 0
    sent = sum(around.costs.links.seconds(term) or 0.0 for term in now.traffic.terms if term.after or not hidden)
    if seconds <= sent:
        return None
    return _by_host(now, around, sent, seconds) or _by_gpu(now, around, sent, seconds)


def _by_host(now: Plan, around: Circumstances, sent: float, seconds: float) -> tuple[StepTime, Costs] | None:
    """Return them where the host is the larger one: so many times as long as assumed it takes; else None."""
    time = now.time
    assert time is not None
    waits = time.host - _framework(now, around, around.costs)
    if waits <= 0 or time.communication - sent > waits:  # it may as well be the network, if it is not the GPU
        return None

    def parts(factor: float) -> tuple[StepTime, Costs]:
        costs = around.costs.on_host(factor)
        micro, accumulation = now.micro, now.accumulation
        made = step_time(now.setup, around.model, now.traffic, costs, micro=micro, accumulation=accumulation)
        assert made is not None
        return replace(made, communication=sent, hidden=0.0), costs

    few, many = 0.0, _SLOWEST
    if not parts(few)[0].seconds < seconds < parts(many)[0].seconds:
        return None
    for _ in range(_HALVINGS):
        middle = (few + many) / 2
        few, many = (middle, many) if parts(middle)[0].seconds < seconds else (few, middle)
    return parts(many)


def _by_gpu(now: Plan, around: Circumstances, sent: float, seconds: float) -> tuple[StepTime, Costs] | None:
    time = now.time
    assert time is not None
    # The host takes no longer than was assumed, since that would show; where the step is shorter, less.
    costs = around.costs.on_host(min(1.0, seconds / time.seconds))
    framework = _framework(now, around, costs)
    waits = time.host - _framework(now, around, around.costs)
    if work_of(now.setup) is not Work.GATHERED and waits > 0:
        costs, framework, waits = replace(costs, host=Host()), 0.0, 0.0
    rest = seconds - sent - framework
    if rest <= 0:
        return None
    # Computing takes at least what was assumed of it: then what is too short was less work for ZeRO and the optimizer.
    avoidable = time.work + time.update + waits
    compute = min(rest, max(time.compute, rest - avoidable))
    share = (rest - compute) / avoidable if avoidable else 0.0
    found = StepTime(compute, time.work * share, time.update * share, sent, host=waits * share + framework)
    costs = replace(
        costs,
        sample=costs.sample * compute / time.compute,
        reduction={work: each * share for work, each in costs.reduction.items()},
        update={work: each * share for work, each in costs.update.items()},
    )
    if work_of(now.setup) is not Work.GATHERED:
        return found, costs
    # As long as before by what is left of the work: more would make the step shorter than it was measured.
    before, after = (each.host.starting(now.setup, around.model, now.accumulation) for each in (around.costs, costs))
    behind = share * (costs.hides * time.compute - before) + after
    return found, replace(
        costs,
        gather=around.costs.gather * share,
        module=around.costs.module * share,
        hides=behind / compute if compute else 0.0,
    )


def _framework(now: Plan, around: Circumstances, costs: Costs) -> float:
    """Seconds of a step's framework, in which the GPU waits whatever its work is."""
    return now.accumulation * costs.host.framework(now.setup, around.model)
