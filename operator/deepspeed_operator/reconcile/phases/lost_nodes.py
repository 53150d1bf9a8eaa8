"""Pods on nodes that do not answer: deleted by force, once no rank of theirs can still write.

An agent that hears nothing of rank 0's, and rank 0's that hears nothing of another, ends its ranks within seconds. So
those of a lost pod have ended where a pod of the attempt was elsewhere. Where all pods are lost, they may still reach
each other, and write to a file system that answers them: only whoever runs the job can say that they do not.
"""

from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.failure_policy import DEFAULT_FORCE_SECONDS, FENCE_SECONDS
from deepspeed_operator.job.failure_rules import policy_of
from deepspeed_operator.reconcile.actions import DeletePod
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import PodView

# The agents' clocks run from the last sign of life, which is before the cluster misses the node; ranks get 5 s to end.
_FENCED_WITHIN: Final = timedelta(seconds=FENCE_SECONDS + 5)
_NEVER: Final = -1


def lost_pods(observed: Observed, gang: Gang) -> tuple[tuple[DeletePod, ...], datetime | None]:
    """Return the deletions by force that are due, and when the next one is; None if none is known to come."""
    due = [(pod, forced_at(observed, pod)) for pod in (*gang.pods.values(), *gang.stale)]
    ripe = tuple(DeletePod(pod.name, pod.uid, forced=True) for pod, at in due if at is not None and at <= observed.now)
    later = [at for _, at in due if at is not None and at > observed.now]
    return ripe, min(later, default=None)


def forced_at(observed: Observed, pod: PodView) -> datetime | None:
    """Return when a pod of the job is deleted by force; None where it is not, or not yet known to be."""
    if pod.gone or pod.finished or pod.deleted_at is None or pod.lost_since is None:
        return None
    if pod.job_uid != observed.job.metadata.uid:
        return None
    node_loss = policy_of(observed.job.spec).node_loss
    given = node_loss.force_delete_after_seconds if node_loss is not None else None
    if given == _NEVER or (given is None and not _was_fenced(observed, pod)):
        return None
    after = timedelta(seconds=DEFAULT_FORCE_SECONDS if given is None else given)
    return max(pod.deleted_at + after, pod.lost_since + _FENCED_WITHIN)


def _was_fenced(observed: Observed, pod: PodView) -> bool:
    """Whether a pod of its attempt is known to have been on a node that answers."""
    status = observed.job.status
    nodes = next((each.nodes for each in status.attempts if each.number == pod.attempt), None)
    if pod.attempt == status.attempt_number and status.run is not None:
        nodes = status.run.world.nodes
    lost = [each for each in observed.pods if (each.job_uid, each.attempt) == (pod.job_uid, pod.attempt)]
    return nodes is not None and nodes > sum(each.lost_since is not None and not each.released for each in lost)
