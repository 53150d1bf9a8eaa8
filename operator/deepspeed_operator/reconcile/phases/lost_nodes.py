"""Pods on nodes that do not answer: deleted by force, once no rank of theirs can still write.

An agent that hears nothing of rank 0's, and rank 0's that hears nothing of another, ends its ranks within seconds. So
those of a lost pod have ended where a pod of the attempt was elsewhere. Where all pods are lost, they may still reach
each other, and write to a file system that answers them: only whoever runs the job can say that they do not.
"""

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from heapq import nlargest
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
    losses, pods = Losses(observed), (*gang.pods.values(), *gang.stale)
    due = [(pod, losses.forced_at(pod)) for pod in pods]
    ripe = tuple(DeletePod(pod.name, pod.uid, forced=True) for pod, at in due if at is not None and at <= observed.now)
    times = (*(at for _, at in due), *map(losses.given_up_at, pods))
    return ripe, min((at for at in times if at is not None and at > observed.now), default=None)


class Losses:
    """When pods of the job are given up that their nodes do not tell of; their attempts are counted once for all."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        own = [pod for pod in observed.pods if pod.job_uid == observed.job.metadata.uid]
        self._lost = Counter(pod.attempt for pod in own if pod.lost_since is not None and not pod.released)
        self._told: dict[int, list[tuple[datetime, str]]] = defaultdict(list)
        for pod in own:
            if pod.deleted_at is not None and not pod.gone:
                # Two, since a pod is not its own peer.
                self._told[pod.attempt] = nlargest(2, [*self._told[pod.attempt], (pod.deleted_at, pod.uid)])

    def given_up_at(self, pod: PodView) -> datetime | None:
        """Return when a lost pod's attempt ends for want of it; None where it does not, or that is not known yet."""
        if pod.gone or pod.finished or pod.deleted_at is None or pod.lost_since is None:
            return None
        if pod.job_uid != self._observed.job.metadata.uid:
            return None
        node_loss = self._observed.policy.node_loss
        given = node_loss.force_delete_after_seconds if node_loss is not None else None
        if given == _NEVER or (given is None and not self._was_fenced(pod.attempt)):
            return None
        after = timedelta(seconds=DEFAULT_FORCE_SECONDS if given is None else given)
        return max(pod.deleted_at + after, pod.lost_since + _FENCED_WITHIN)

    def forced_at(self, pod: PodView) -> datetime | None:
        """Return when a pod of the job is deleted by force; None where it is not, or not yet known to be.

        Its node may have lost the API server alone: then its ranks go on with their peers until these have ended, and
        a pod whose peers were told to end has as long to save as they have.
        """
        at, status = self.given_up_at(pod), self._observed.job.status
        ended = next((moment(each.end_time) for each in status.attempts if each.number == pod.attempt), None)
        stopping = self._observed.attempt.phase in {Phase.STOPPING, Phase.EVICTING}
        if at is None or pod.deleted_at is None or (ended is None and not stopping):
            return None
        grace = (pod.grace_ends or pod.deleted_at) - pod.deleted_at
        told = (told_at for told_at, uid in self._told[pod.attempt] if uid != pod.uid)
        alone = max(at, pod.deleted_at + grace, (ended or pod.deleted_at) + _FENCED_WITHIN)
        return max([alone, *(told_at + grace + _FENCED_WITHIN for told_at in told)])

    def _was_fenced(self, attempt: int) -> bool:
        """Whether a pod of this attempt is known to have been on a node that answers."""
        status = self._observed.job.status
        nodes = next((each.nodes for each in status.attempts if each.number == attempt), None)
        if attempt == status.attempt_number and status.run is not None:
            nodes = status.run.world.nodes
        return nodes is not None and nodes > self._lost[attempt]
