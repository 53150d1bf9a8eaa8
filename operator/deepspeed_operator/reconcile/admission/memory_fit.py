"""Whether a run's memory will be enough: the condition MemoryFit."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from deepspeed_operator.api.elastic import ElasticSize, RunElastic
from deepspeed_operator.api.finding import Code, advice, error, warning
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.spec import AdmissionPolicy, DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding
from deepspeed_operator.job.gpus import Gpus
from deepspeed_operator.job.units import gib
from deepspeed_operator.plan.advice.smallest_change import smallest_change
from deepspeed_operator.plan.memory.case import Case, Missing, plan_memory, pod_limit
from deepspeed_operator.plan.memory.fit import ERROR, Fit, MemoryFit
from deepspeed_operator.reconcile.report.conditions import Statement

_REASONS: Final = {Fit.YES: Reason.FITS, Fit.NO: Reason.DOES_NOT_FIT, Fit.UNKNOWN: Reason.PREDICTION_UNCERTAIN}
_HOW_TO_KNOW: Final = {
    "spec.gpuMemory": " Write it, or let the operator read the nodes' labels (the chart's readNodes).",
    "spec.deepspeedVersion": " Write it.",
}


def stated(
    case: Case | Missing, spec: DeepSpeedJobSpec, slots: int, gpus: Gpus | None
) -> tuple[Statement, list[Finding]]:
    """Return the condition MemoryFit, and the findings that go with it; a pod has `slots` ranks."""
    pod = list(_of_the_pod(case, spec, slots)) if isinstance(case, Case) else []
    refuses = spec.admission is AdmissionPolicy.REQUIRE_FIT
    remark, path = (error, "spec.admission") if refuses else (advice, "spec.model")
    if isinstance(case, Case) and (too_much := _pod_is_too_small(case, spec, slots)):
        said = Statement(Fit.NO.value, Reason.DOES_NOT_FIT, too_much)
        return said, [remark(path, Code.DOES_NOT_FIT, too_much, _MORE_MEMORY)]
    planned = plan_memory(case, gpus)
    if isinstance(planned, Missing):
        words = f"{planned.path}: {planned.why}.{_HOW_TO_KNOW.get(planned.path, '')}"
        said = Statement("Unknown", Reason.NOT_PREDICTED, words)
        fix = "Correct spec.model, or remove it."
        wrong = warning(planned.path, Code.INVALID_MODEL, f"{planned.why}.", fix)
        return said, [wrong] if planned.wrong else pod
    said = Statement(planned.fit.value, _REASONS[planned.fit], str(planned))
    if planned.fit is not Fit.NO:
        return said, pod
    remedy = smallest_change(case, planned.capacity) if isinstance(case, Case) else None
    smaller = f"{remedy}." if remedy else "No single change that is known fits."
    fix = f"{smaller} Correct spec.model or spec.gpuMemory where they are wrong."
    return said, [remark(path, Code.DOES_NOT_FIT, str(planned), fix), *pod]


def sizes_that_do_not_fit(case: Case, elastic: RunElastic, slots: int, gpus: Gpus | None) -> frozenset[int]:
    """Return the numbers of nodes with which a rank needs more than its GPU has for certain."""
    return frozenset(each.nodes for each in elastic.sizes if _does_not_fit(case, each, slots, gpus))


def _does_not_fit(case: Case, size: ElasticSize, slots: int, gpus: Gpus | None) -> bool:
    accumulation = size.batch.accumulation if size.batch is not None else None
    there = replace(case, world=size.nodes * slots, accumulation=accumulation or case.accumulation)
    planned = plan_memory(there, gpus)
    return isinstance(planned, MemoryFit) and planned.fit is Fit.NO


_MORE_MEMORY: Final = "Raise resources.limits.memory of the trainer container, or offload less."


def _pod_is_too_small(case: Case, spec: DeepSpeedJobSpec, slots: int) -> str:
    """Return what a pod holds for certain, if that is more than its container may use; else nothing."""
    limit, least = pod_limit(spec), case.pod_at_least(slots)
    if limit is None or least <= limit:
        return ""
    return (
        f"A pod's {slots} ranks hold {gib(least)} of optimizer states in the host's memory, without all else, and the "
        f"trainer container may use {gib(limit)}: the kernel kills them. It does not fit even under the most "
        "favourable assumptions."
    )


def _of_the_pod(case: Case, spec: DeepSpeedJobSpec, slots: int) -> Iterator[Finding]:
    limit, need = pod_limit(spec), case.pod(slots)
    if limit is None:
        return
    loaded = max(need, case.loading(slots))
    if need * (1 - ERROR) > limit:
        message = (
            f"the trainer container may use {gib(limit)}, and its {slots} ranks need about "
            f"{gib(need)}, without data loaders and /dev/shm: the kernel would kill them."
        )
        yield advice("spec.template", Code.POD_MEMORY, message, _MORE_MEMORY)
    elif loaded * (1 + ERROR) > limit:
        message = (
            f"the trainer container may use {gib(limit)}, and its {slots} ranks, each of which loads the whole model "
            f"unless zero.Init divides it, need {gib(loaded)} for that."
            if loaded > need
            else f"the trainer container may use {gib(limit)}, and its {slots} ranks need about {gib(need)}: data "
            "loaders and /dev/shm have hardly any room beside that."
        )
        first = "Make transformers' TrainingArguments, or HfDeepSpeedConfig, before the model is loaded. "
        yield advice("spec.template", Code.POD_MEMORY, message, (first if loaded > need else "") + _MORE_MEMORY)
