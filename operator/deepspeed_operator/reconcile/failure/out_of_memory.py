"""What to say of a GPU or a pod that ran out of memory: what was predicted, and the smallest change that fits."""

import re
from typing import Final

from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Failure
from deepspeed_operator.job.accelerators import default_resource
from deepspeed_operator.job.gpus import Gpus
from deepspeed_operator.job.units import GIB, gib
from deepspeed_operator.plan.advice.smallest_change import smallest_change
from deepspeed_operator.plan.memory.case import Case, Missing, case_of, pod_limit
from deepspeed_operator.reconcile.admission.configuration import Configuration, run_configuration
from deepspeed_operator.reconcile.admission.gpu_lookup import known_gpus
from deepspeed_operator.reconcile.failure.first_failure import saying_more
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.report.spec_changes import is_of_another_run

_OUT_OF_MEMORY: Final = re.compile(r"OutOfMemoryError|(?:CUDA|HIP) out of memory")
# In PyTorch's words, up to 2.0 and since: (GPU 0; 79.15 GiB total capacity; 77.02 GiB already allocated; …
_SIZE: Final = r"([0-9.]+) ([GM]iB)"
_CAPACITY: Final = re.compile(rf"(?:total capacity of |GPU \d+; ){_SIZE}")
_ALLOCATED: Final = re.compile(
    rf"(?:capacity; |allocated memory ){_SIZE} (?:already allocated|is allocated by PyTorch)"
)
_TRIED: Final = re.compile(rf"Tried to allocate {_SIZE}")
_UNITS: Final = {"GiB": GIB, "MiB": 2**20}


def explained(observed: Observed, failure: Failure) -> Failure:
    """Add to an out-of-memory failure what was predicted, and of a GPU the smallest change that would fit.

    Unanswered is raised to read the run's configuration, without which nothing can be predicted.
    """
    of_pod = failure.reason == Reason.HOST_OUT_OF_MEMORY
    known = of_pod or _OUT_OF_MEMORY.search(failure.message)
    case = _case(observed) if known and observed.job.spec.model and not is_of_another_run(observed) else None
    if case is None:
        return failure
    if of_pod:
        words = _of_the_pod(case, pod_limit(observed.job.spec), observed.run.world.slots_per_node)
        return saying_more(failure, f". {words}")
    hint = out_of_memory(case, failure.message, known_gpus(observed, default_resource(observed.run.world)))
    return saying_more(failure, f". {hint}") if hint else failure


def out_of_memory(case: Case | Missing, words: str, gpus: Gpus | None) -> str:
    """Return what to say of a job that ended with PyTorch's words about a GPU's memory; nothing, if these are others.

    `gpus`: what is known of them where PyTorch does not say what one has.
    """
    if isinstance(case, Missing) or not _OUT_OF_MEMORY.search(words):
        return ""
    capacity = _bytes(_CAPACITY, words) or (gpus.smallest if gpus is not None else 0)
    peak = case.memory.peak
    hint = f"Predicted: most memory in the {peak.name}, {peak.largest.what} {gib(peak.largest.size)}"
    if not capacity:
        return hint
    # What was there when it failed, and what it failed to get: at least so much is needed, whatever was predicted.
    remedy = smallest_change(case, capacity, _bytes(_ALLOCATED, words) + _bytes(_TRIED, words))
    # Scaled by what was measured, it is nearer than a prediction's error.
    return (
        f"{hint}; the smallest change that fits: {remedy.change}" if remedy else f"{hint}; no change that is known fits"
    )


def _of_the_pod(case: Case, limit: int | None, slots: int) -> str:
    of_limit = f", of {gib(limit)} that its container may use" if limit is not None else ""
    words = f"Predicted: its {slots} ranks need {gib(case.pod(slots))}{of_limit}, without data loaders and /dev/shm"
    loading = case.loading(slots)
    more = f"; {gib(loading)} more while each loads the model, unless zero.Init divides it" if loading else ""
    return f"{words}{more}"


def _bytes(pattern: re.Pattern[str], words: str) -> int:
    found = pattern.search(words)
    return round(float(found[1]) * _UNITS[found[2]]) if found else 0


def _case(observed: Observed) -> Case | None:
    run, config = observed.run, run_configuration(observed)
    if not isinstance(config, Configuration):
        return None
    found = case_of(observed.job.spec, config.values, run.world, run.batch, run.deepspeed_version)
    return found if isinstance(found, Case) else None
