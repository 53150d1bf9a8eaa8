"""Pods on nodes that do not answer: deleted by force, once no rank of theirs can still write.

An agent that hears nothing of rank 0's, and rank 0's that hears nothing of another, ends its ranks within seconds. So
those of a lost pod have ended where a pod of the attempt was elsewhere. Where all pods are lost, they may still reach
each other, and write to a file system that answers them: only whoever runs the job can say that they do not.
"""

from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.failure_policy import DEFAULT_FORCE_SECONDS, FENCE_SECONDS
from deepspeed_operator.reconcile.actions import DeletePod
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import PodView, moment

# The agents' clocks run from the last sign of life, which is before the cluster misses the node; ranks get 5 s to end.
_FENCED_WITHIN: Final = timedelta(seconds=FENCE_SECONDS + 5)
_NEVER: Final = -1


def lost_pods(observed: Observed, gang: Gang) -> tuple[tuple[DeletePod, ...], datetime | None]:
    """Return the deletions by force that are due, and when to look next; None if nothing is known to come."""
    pods = (*gang.pods.values(), *gang.stale)
    due = {pod.name: forced_at(observed, pod) for pod in pods}
    ripe = (pod for pod in pods if (at := due[pod.name]) is not None and at <= observed.now)
    times = (*due.values(), *(given_up_at(observed, pod) for pod in pods))
    later = [at for at in times if at is not None and at > observed.now]
    return tuple(DeletePod(pod.name, pod.uid, forced=True) for pod in ripe), min(later, default=None)


def given_up_at(observed: Observed, pod: PodView) -> datetime | None:
    """Return when a lost pod's attempt ends for want of it; None where it does not, or that is not known yet."""
    if pod.gone or pod.finished or pod.deleted_at is None or pod.lost_since is None:
        return None
    if pod.job_uid != observed.job.metadata.uid:
        return None
    given = observed.policy.node_loss.force_delete_after_seconds if observed.policy.node_loss is not None else None
    if given == _NEVER or (given is None and not _was_fenced(observed, pod)):
        return None
    after = timedelta(seconds=DEFAULT_FORCE_SECONDS if given is None else given)
    return max(pod.deleted_at + after, pod.lost_since + _FENCED_WITHIN)


def forced_at(observed: Observed, pod: PodView) -> datetime | None:
    """Return when a pod of the job is deleted by force; None where it is not, or not yet known to be.

    Its node may have lost the API server alone: then its ranks go on with their peers until these have ended, and a
    pod whose peers were told to end has as long to save as they have.
    """
    at, status = given_up_at(observed, pod), observed.job.status
    ended = next((moment(each.end_time) for each in status.attempts if each.number == pod.attempt), None)
    if at is None or pod.deleted_at is None or (ended is None and observed.attempt.phase is not Phase.STOPPING):
        return None
    grace = (pod.grace_ends or pod.deleted_at) - pod.deleted_at
    own = (pod.job_uid, pod.attempt)
    peers = (each for each in observed.pods if (each.job_uid, each.attempt) == own and each.uid != pod.uid)
    told = [each.deleted_at for each in peers if each.deleted_at is not None and not each.gone]
    alone = max(at, pod.deleted_at + grace, (ended or pod.deleted_at) + _FENCED_WITHIN)
    return max([alone, *(each + grace + _FENCED_WITHIN for each in told)])


def _was_fenced(observed: Observed, pod: PodView) -> bool:
    """Whether a pod of its attempt is known to have been on a node that answers."""
    status = observed.job.status
    nodes = next((each.nodes for each in status.attempts if each.number == pod.attempt), None)
    if pod.attempt == status.attempt_number and status.run is not None:
        nodes = status.run.world.nodes
    lost = [each for each in observed.pods if (each.job_uid, each.attempt) == (pod.job_uid, pod.attempt)]
    return nodes is not None and nodes > sum(each.lost_since is not None and not each.released for each in lost)
