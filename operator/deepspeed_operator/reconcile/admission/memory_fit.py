"""Whether a run's memory will be enough: the condition MemoryFit."""

from collections.abc import Iterator
from typing import Final

from deepspeed_operator.api.finding import Code, advice, error, warning
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.spec import AdmissionPolicy, DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding
from deepspeed_operator.job.gpus import Gpus
from deepspeed_operator.job.units import gib
from deepspeed_operator.plan.advice.smallest_change import smallest_change
from deepspeed_operator.plan.memory.case import Case, Missing, plan_memory, pod_limit
from deepspeed_operator.plan.memory.fit import ERROR, Fit
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
    refuses = spec.admission is AdmissionPolicy.REQUIRE_FIT
    remark, path = (error, "spec.admission") if refuses else (advice, "spec.model")
    remedy = smallest_change(case, planned.capacity) if isinstance(case, Case) else None
    smaller = f"{remedy}." if remedy else "No single change that is known fits."
    fix = f"{smaller} Correct spec.model or spec.gpuMemory where they are wrong."
    return said, [remark(path, Code.DOES_NOT_FIT, str(planned), fix), *pod]


def _of_the_pod(case: Case, spec: DeepSpeedJobSpec, slots: int) -> Iterator[Finding]:
    limit, need = pod_limit(spec), case.pod(slots)
    if limit is not None and need * (1 - ERROR) > limit:
        message = (
            f"the trainer container may use {gib(limit)}, and its {slots} ranks need about "
            f"{gib(need)}, without data loaders and /dev/shm: the kernel would kill them."
        )
        fix = "Raise resources.limits.memory of the trainer container, or offload less."
        yield advice("spec.template", Code.POD_MEMORY, message, fix)
