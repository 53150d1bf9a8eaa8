"""An elastic run where the scheduler has no room for all pods: with how many it goes on.

What is known of the cluster is which pods of the attempt have got a node that answers. So many the next attempt can
have, and the largest size of the run that is no larger is taken. Nothing tells when there is room again: each attempt
that follows for another reason begins with all nodes, and comes here again where there is not.
"""

from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.attempt_status import AttemptOutcome
from deepspeed_operator.api.elastic import ElasticSize
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Failure
from deepspeed_operator.reconcile.actions import JobEvent, Outcome
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import PodView, moment
from deepspeed_operator.reconcile.phases.beginning import begin_attempt
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.outcome import timestamp
from deepspeed_operator.reconcile.report.verdict import sentence

_LIMIT: Final = "spec.failurePolicy.replacementDeadlineSeconds"


def fewer_nodes(observed: Observed, gang: Gang) -> ElasticSize | None:
    """Return the size with which the run is to go on as there is no room for this attempt's pods; None: with all.

    None, too, where there is room for all of them, or for no size of the run.
    """
    elastic = observed.run.elastic
    lacking = [index for index in range(gang.nodes) if not _has_room(gang.pods.get(index))]
    if elastic is None or not any(_is_refused_by_scheduler(gang.pods.get(index)) for index in lacking):
        return None
    room = gang.nodes - len(lacking)
    return max((each for each in elastic.sizes if each.nodes <= room), key=lambda each: each.nodes, default=None)


def resized_at(observed: Observed, gang: Gang) -> datetime | None:
    """Return when an attempt that starts gives way to one with fewer nodes; None where it does not, or not yet."""
    since = [pod.unschedulable_since for pod in gang.pods.values() if pod.unschedulable_since is not None]
    admitted = observed.attempt.admitted_time
    if gang.missing or not since or admitted is None or fewer_nodes(observed, gang) is None:
        return None
    return max(min(since), moment(admitted)) + timedelta(seconds=observed.policy.replacement_deadline_seconds)


def resize(observed: Observed, gang: Gang) -> Outcome:
    """Begin an attempt with as many nodes as there is room for. The pods of this one end once it is written."""
    size = fewer_nodes(observed, gang)
    assert size is not None, "resized_at tells of one"
    pod = next(pod for _, pod in sorted(gang.pods.items()) if _is_refused_by_scheduler(pod))
    seconds = observed.policy.replacement_deadline_seconds
    cause = f"pod {pod.name} could not be scheduled within {seconds} s ({_LIMIT}): {sentence(pod.unschedulable or '')}"
    draft, now = StatusDraft.of(observed.job.status), timestamp(observed.now)
    draft.close_attempt(AttemptOutcome.RESIZED, now, Failure(reason=Reason.UNSCHEDULABLE, pod=pod.name, message=cause))
    words = f"Attempt {gang.attempt + 1} begins with {size.nodes} of {observed.run.all_nodes} nodes: {cause}"
    draft.events.append(JobEvent("Warning", Reason.RESIZED, words))
    return begin_attempt(observed, draft, fewer=size, why=cause)


def _has_room(pod: PodView | None) -> bool:
    """Whether a pod has a node, or had one when it ended with its gang."""
    return pod is not None and pod.node is not None and pod.lost_since is None


def _is_refused_by_scheduler(pod: PodView | None) -> bool:
    return pod is not None and pod.node is None and pod.unschedulable is not None and pod.deleted_at is None
