"""What an attempt says while pods of before may still write: how they end, and whether anything is to be done."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.attempt_status import Obstacle
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import PodView
from deepspeed_operator.reconcile.phases.lost_nodes import Losses
from deepspeed_operator.reconcile.report.outcome import timestamp

# What a kubelet needs to kill the containers and to tell of it, once the grace period is over.
_KILLED_WITHIN: Final = timedelta(seconds=15)
_LISTED: Final = 5


def waiting_for(observed: Observed, gang: Gang) -> tuple[Obstacle, datetime | None]:
    """Return what to say of old pods that may still write, and when something else is to be said of them."""
    old, now = gang.old_pods_that_may_write, observed.now
    lost = [pod for pod in old if pod.lost_since is not None]
    known = [pod for pod in old if pod.lost_since is None]
    due = {pod.name: pod.grace_ends + _KILLED_WITHIN for pod in known if pod.grace_ends is not None}
    stuck = [pod for pod in known if pod.name in due and due[pod.name] <= now]
    ending = [at for at in due.values() if at > now]
    staying = [pod for pod in gang.foreign if pod in known and pod.deleted_at is None]
    words = [f"Attempt {gang.attempt} begins when the old pods have ended, so that no two write: {_listed(old)}."]
    for node, since in sorted({(pod.node or "?", timestamp(pod.lost_since)) for pod in lost if pod.lost_since}):
        delete = f"kubectl delete node {node}"
        words.append(f"Node {node} has not answered since {since}: if it is gone for good, delete it: {delete}.")
    losses = Losses(observed)
    forced = [at for pod in lost if (at := losses.forced_at(pod)) is not None]
    if forced:
        words.append(
            f"Its pods are deleted by force at {timestamp(max(forced))}, when their ranks have ended for sure."
        )
    if stuck:
        seen = f"kubectl describe pod {stuck[0].name}"
        words.append(f"The grace period of {_listed(stuck)} is over: {seen} shows what keeps it; look at its node.")
    if staying:
        delete = f"kubectl delete pod {staying[0].name}"
        words.append(
            f"Nobody has deleted {_listed(staying)} yet: garbage collection deletes the pods of a deleted job within "
            f"moments; delete what it leaves: {delete}."
        )
    if not (lost or stuck or staying):
        latest = f", by {timestamp(max(ending))} at the latest" if ending else ""
        words.append(f"They end within their grace period{latest}: there is nothing to do.")
    return Obstacle(reason=Reason.WAITING_FOR_OLD_PODS, message=" ".join(words)), min(ending, default=None)


def _listed(pods: Sequence[PodView]) -> str:
    where = ", ".join(f"{pod.name} on node {pod.node or '?'}" for pod in pods[:_LISTED])
    return where + (f" and {len(pods) - _LISTED} more" if len(pods) > _LISTED else "")
