"""The Workload of a job, as a watch tells or as it was read a moment ago."""

from datetime import timedelta
from typing import Final

from deepspeed_operator.api.queueing import QueueStatus
from deepspeed_operator.reconcile.actions import ReadOfQueue, ReadWorkload
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.workload_view import Lookup, WorkloadAnswer

# Where no watch tells, such as before Kueue is installed.
REREAD: Final = timedelta(seconds=10)
# Where Kueue, or its webhook, does not answer.
TRY_AGAIN: Final = timedelta(seconds=30)


def queue_of(observed: Observed) -> QueueStatus:
    """Return the queue of the run, which must have one."""
    assert observed.job.status.queue is not None, "a queue is recorded with the run that asks for it"
    return observed.job.status.queue


def known_workload(observed: Observed) -> WorkloadAnswer:
    """Return the Workload that status names, the former one first; raise Unanswered to read it."""
    name, view = queue_of(observed).held_workload, observed.workload
    assert name is not None, "nobody asks for a Workload that status does not name"
    if view is not None and view.name == name:
        return WorkloadAnswer(name, view, None, observed.now)
    known, job = observed.facts.workload, observed.job.metadata.name
    if observed.watches_workloads and known is not None and known.view is not None and known.view.job == job:
        # It was there, and the watch, which knows those that are labelled as this job's, does not: it has gone since.
        return observed.facts.get(ReadWorkload(name, known.read_at))
    return observed.facts.get(ReadWorkload(name, observed.now - REREAD))


def lookups(observed: Observed, *questions: ReadOfQueue) -> dict[str, Lookup]:
    """Return what the queue names, by its name; raise Unanswered to read all of it together."""
    observed.facts.want(*questions)
    return {each.name: observed.facts.get(each) for each in questions}
