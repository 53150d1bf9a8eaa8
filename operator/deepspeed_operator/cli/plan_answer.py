"""What `dsjob plan` answers first: what to train with, what that comes to, and what other micro batches do.

MFU is of model FLOPs (arXiv 2204.02311, B): what is computed a second time counts as time, not as work.
"""

import json
from collections.abc import Iterator
from typing import Final

from deepspeed_operator.cli.paint import painted
from deepspeed_operator.cli.plan_words import gib, needed, speed, word
from deepspeed_operator.cli.planned import Estimate, Planned
from deepspeed_operator.plan.advice.alternatives import Plan
from deepspeed_operator.plan.advice.candidates import Change
from deepspeed_operator.plan.memory.fit import Fit
from deepspeed_operator.plan.time.costs import flops

_USUAL_SEQUENCE: Final = 4096
_TOKENS: Final = 10**9
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_FEW: Final = 2  # days, and hours, that are told in the smaller unit


def answer_lines(planned: Planned) -> Iterator[str]:
    """Yield the answer, and what it changes of what is written."""
    job, answer = planned.job, planned.answer
    plan = answer.estimate.plan
    words = f"stage {plan.setup.stage}, micro batch {plan.micro}{_others(planned)}, {cost(planned, answer.estimate)}"
    yield f"{painted(job.name, bold=True)}: {words}"
    if answer.offer is not None:
        gain = answer.offer.gain
        times = f"×{gain:.2f}, " if gain is not None and not planned.is_too_large else ""
        yield f"  {times}by {written(answer.offer.change)} ({_applied(planned)})"
    fit = answer.estimate.fit
    if fit is not None and fit.open:
        yield f"  {word(answer.estimate)}: {'; '.join(fit.open)}"
    pod, limit = answer.estimate.pod_size, job.limit
    if limit is not None and pod > planned.largest_pod:
        yield f"  its pod needs {gib(pod)} of its limit of {gib(limit)}, too much: the kernel would end it"
    if planned.is_too_large:
        surely = " it does not fit" if planned.now.fits is Fit.NO else ""
        yield f"  As written{surely}: {_memory(planned, planned.now)}"


def cost(planned: Planned, estimate: Estimate) -> str:
    """What an estimate comes to: memory of a GPU, time of a step, tokens a second, MFU."""
    return f"{_memory(planned, estimate)}, {_speed(planned, estimate.plan)}"


def _applied(planned: Planned) -> str:
    offer = planned.answer.offer
    assert offer is not None
    number = f"--apply {planned.number_of(offer)}"
    if not offer.change.script.words:
        return number
    return f"{number} writes the file"


def written(change: Change) -> str:
    """What is written otherwise, in the configuration and in the script."""
    values = [f"{path}: {json.dumps(value)}" for path, value in change.values.items()]
    script = [f"{' and '.join(change.script.words)} in the script"] if change.script.words else []
    return ", ".join((*values, *script))


def _others(planned: Planned) -> str:
    """The largest micro batch that fits as surely, where it is another."""
    answer = planned.answer
    chosen = answer.estimate
    if chosen.fit is None or not chosen.may_fit or not planned.counts_all_memory:
        return ""
    sure = chosen.fits is Fit.YES
    fitting = [each.plan.micro for each in answer.micro_batches if (each.fits is Fit.YES if sure else each.may_fit)]
    most = max(fitting, default=chosen.plan.micro)
    return f" ({most} {'fit' if sure else 'may fit'})" if most > chosen.plan.micro else ""


def _memory(planned: Planned, estimate: Estimate) -> str:
    if estimate.fit is None:
        return f"{needed(planned, estimate)} of a GPU"
    size = f"{needed(planned, estimate).removesuffix(' GiB')} of {_capacity(estimate)}"
    return size if estimate.fits is not Fit.UNKNOWN else f"{size} ({word(estimate)})"


def _capacity(estimate: Estimate) -> str:
    return gib(estimate.fit.capacity) if estimate.fit is not None else "a GPU"


def _speed(planned: Planned, plan: Plan) -> str:
    if plan.time is None or not plan.time.seconds:
        return "its time is unknown"
    time, tokens = plan.time, planned.job.around.model.usage.sequence or _USUAL_SEQUENCE
    here = plan.samples * tokens
    slow, fast = here / time.seconds, here / time.least
    words = [f"{span(time.least, time.seconds)} s a step", f"{_thousands(slow, fast)} tokens/s"]
    if planned.job.peak is not None:
        most = planned.job.around.world * planned.job.peak
        work = plan.samples * flops(planned.job.around.model, tokens)
        words.append(f"MFU {span(100 * work / most / time.seconds, 100 * work / most / time.least, digits=2)} %")
    without = f"; without {', '.join(time.unproven)}" if time.unproven else ""
    return f"{', '.join(words)}; 1 B tokens take {duration(_TOKENS / slow)}{without}"


def _thousands(slow: float, fast: float) -> str:
    return f"{span(slow / 1e3, fast / 1e3)} k" if slow >= 1e3 else span(slow, fast)


def span(least: float, most: float, *, digits: int = 3) -> str:
    """Both bounds, or one number where they are written alike."""
    few, many = (f"{each:.{digits}g}" for each in (least, most))
    few, many = (f"{float(each):g}" if "e" in each else each for each in (few, many))
    return few if few == many else f"{few} to {many}"


def duration(seconds: float) -> str:
    """Seconds in the unit in which people say them."""
    if seconds >= _FEW * _DAY:
        return f"{seconds / _DAY:.1f} d"
    return f"{seconds / _HOUR:.1f} h" if seconds >= _HOUR else f"{seconds / _MINUTE:.0f} min"


def micro_batch_lines(planned: Planned) -> Iterator[str]:
    """Yield what other micro batches do, with all else as in the answer."""
    answer = planned.answer
    chosen = answer.estimate.plan
    yield f"Which micro batch, at stage {chosen.setup.stage}{' so changed' if answer.offer is not None else ''}"
    wide = max(len(word(each)) for each in answer.micro_batches)
    for each in answer.micro_batches:
        plan = each.plan
        here = [speed(plan)] if speed(plan) else []
        here.append(f"accumulation {plan.accumulation}")
        here += [f"{plan.samples} samples a step"] if plan.samples != chosen.samples else []
        here += ["the answer"] if plan.micro == chosen.micro else []
        yield f"  {plan.micro:<2} {needed(planned, each):>11}  {word(each):<{wide}}  {', '.join(here)}"
