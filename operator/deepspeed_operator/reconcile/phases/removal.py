"""Pods that are to go."""

from collections.abc import Iterable

from deepspeed_operator.reconcile.actions import DeletePod
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.pods import PodView


def delete(pods: Iterable[PodView]) -> tuple[DeletePod, ...]:
    """Return the deletion of those pods that nobody has deleted yet."""
    return tuple(DeletePod(pod.name, pod.uid) for pod in pods if pod.deleted_at is None)


def delete_unless_changed(gang: Gang) -> tuple[DeletePod, ...]:
    """Return the deletion of the attempt's pods as they are known: one that ends meanwhile keeps its result.

    A pod that ended with success stays until its peers have ended: together they may be the result.
    """
    alive = tuple(pod for pod in gang.pods.values() if not pod.finished)
    return tuple(
        DeletePod(pod.name, pod.uid, pod.resource_version)
        for pod in (alive or tuple(gang.pods.values()))
        if pod.deleted_at is None
    )
