"""Pods that are to go."""

from collections.abc import Iterable

from deepspeed_operator.reconcile.actions import DeletePod
from deepspeed_operator.reconcile.observe.pods import PodView


def delete(pods: Iterable[PodView]) -> tuple[DeletePod, ...]:
    """Return the deletion of those pods that nobody has deleted yet."""
    return tuple(DeletePod(pod.name, pod.uid) for pod in pods if pod.deleted_at is None)
