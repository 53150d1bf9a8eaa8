"""Which GPUs a job's ranks get, where its spec does not say it: as nodes' labels tell."""

from datetime import timedelta
from typing import Final

from deepspeed_operator.job.gpus import Gpus, declared_gpus, gpu_request
from deepspeed_operator.job.provenance import Source
from deepspeed_operator.reconcile.actions import FindGpus
from deepspeed_operator.reconcile.observe.observed import Observed

# Nodes come and go; a run is judged once, and a job that was refused now and then again.
NODES_REREAD: Final = timedelta(minutes=5)


def known_gpus(observed: Observed, default: str) -> Gpus | None:
    """Return the GPUs as spec says them, else as nodes' labels told when they were asked; None if nobody does.

    `default`: the resource of a job whose template names no accelerator, or CPU.
    """
    spec, found = observed.job.spec, observed.facts.gpus
    said = declared_gpus(spec, default)
    if said is not None or found is None or found.request != gpu_request(spec, default) or not found.kinds:
        return said
    return Gpus(found.kinds, Source.NODE_LABELS)


def nodes_question(observed: Observed, default: str) -> FindGpus | None:
    """Return the question whose answer known_gpus needs, None if spec says it or no node could."""
    request = gpu_request(observed.job.spec, default)
    if request is None or declared_gpus(observed.job.spec, default) is not None:
        return None
    return FindGpus(request, observed.now - NODES_REREAD)
