"""What status says about memory: before a run whether it will be enough, after a failure why it was not."""

import re
from collections.abc import Iterator
from typing import Final

from deepspeed_operator.api.spec import Admission, DeepSpeedJobSpec
from deepspeed_operator.api.status import Failure, Finding, Level
from deepspeed_operator.plan.fit import ERROR, Fit
from deepspeed_operator.plan.gpus import Gpus
from deepspeed_operator.plan.jobs import Case, Missing, case_of, plan_memory, pod_limit
from deepspeed_operator.plan.remedies import smallest_change
from deepspeed_operator.plan.units import GIB, gib
from deepspeed_operator.reconcile.actions import ReadConfigMap
from deepspeed_operator.reconcile.conditions import Statement, Verdict
from deepspeed_operator.reconcile.configuration import run_configuration
from deepspeed_operator.reconcile.gpus import known_gpus
from deepspeed_operator.reconcile.observed import Observed

_REASONS: Final = {Fit.YES: "Fits", Fit.NO: "DoesNotFit", Fit.UNKNOWN: "NotCertain"}
_OUT_OF_MEMORY: Final = re.compile(r"OutOfMemoryError|CUDA out of memory")
_CAPACITY: Final = re.compile(r"total capacity of ([0-9.]+) GiB")


def stated(
    case: Case | Missing, spec: DeepSpeedJobSpec, slots: int, gpus: Gpus | None
) -> tuple[Statement, list[Finding]]:
    """Return the condition MemoryFit, and the findings that go with it; a pod has `slots` ranks."""
    pod = list(_of_the_pod(case, spec, slots)) if isinstance(case, Case) else []
    planned = plan_memory(case, gpus)
    if isinstance(planned, Missing):
        said = Statement("Unknown", "NotKnown", f"{planned.path}: {planned.why}.")
        fix = "Correct spec.model, or remove it."
        wrong = Finding(level=Level.WARNING, path=planned.path, message=f"{planned.why}.", fix=fix)
        return said, [wrong] if planned.wrong else pod
    said = Statement(planned.fit.value, _REASONS[planned.fit], str(planned))
    if planned.fit is not Fit.NO:
        return said, pod
    refuses = spec.admission is Admission.REQUIRE_FIT
    level, path = (Level.ERROR, "spec.admission") if refuses else (Level.ADVICE, "spec.model")
    change = smallest_change(case, planned.capacity) if isinstance(case, Case) else None
    smaller = f"The smallest change that fits: {change}." if change else "No single change that is known fits."
    fix = f"{smaller} Correct spec.model or spec.gpuMemory where they are wrong."
    return said, [Finding(level=level, path=path, message=str(planned), fix=fix), *pod]


def _of_the_pod(case: Case, spec: DeepSpeedJobSpec, slots: int) -> Iterator[Finding]:
    limit, need = pod_limit(spec), case.pod(slots)
    if limit is not None and need * (1 - ERROR) > limit:
        message = (
            f"the trainer container may use {gib(limit)}, and its {slots} ranks need about "
            f"{gib(need)}, without data loaders and /dev/shm: the kernel would kill them."
        )
        fix = "Raise resources.limits.memory of the trainer container, or offload less."
        yield Finding(level=Level.ADVICE, path="spec.template", message=message, fix=fix)


def explained(observed: Observed, failure: Failure) -> Failure:
    """Add to an out-of-memory failure of a GPU what was predicted, and the smallest change that would fit."""
    cause, newline, log = failure.message.partition("\n")
    case = _case(observed) if _OUT_OF_MEMORY.search(failure.message) else None
    if case is None:
        return failure
    said = _CAPACITY.search(failure.message)
    gpus = known_gpus(observed)
    capacity = round(float(said[1]) * GIB) if said else gpus.smallest if gpus is not None else 0
    peak = case.fit(capacity or 1).memory.peak
    hint = f"Predicted: most memory in the {peak.name}, {peak.largest.what} {gib(peak.largest.size)}"
    if capacity:
        change = smallest_change(case, capacity)
        hint += f"; the smallest change that fits: {change}" if change else "; no single change that is known fits"
    return failure.model_copy(update={"message": f"{cause}. {hint}{newline}{log}"})


def _case(observed: Observed) -> Case | None:
    spec, status = observed.job.spec, observed.job.status
    config = run_configuration(observed)
    if status.world is None or config is None or isinstance(config, ReadConfigMap | Verdict):
        return None
    found = case_of(spec, config.values, status.world, status.batch, status.deepspeed_version)
    return found if isinstance(found, Case) else None
