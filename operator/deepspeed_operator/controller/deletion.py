"""Deleting exactly the pods that were decided upon."""

import asyncio
from collections.abc import Iterable

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.controller.cache import PodCache, job_key
from deepspeed_operator.controller.children import read
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.clock import now
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.resources import PODS
from deepspeed_operator.reconcile.actions import DeletePod
from deepspeed_operator.reconcile.observe.pods import pod_view


async def delete_pods(client: Client, pods: PodCache, job: DeepSpeedJob, deletions: Iterable[DeletePod]) -> None:
    """Delete the job's own pods among these; one that has changed since is read again instead."""
    owned = {pod.uid for pod in pods.of_job(job_key(job)) if pod.job_uid == job.metadata.uid}
    await asyncio.gather(*(_delete(client, pods, job, each) for each in deletions if each.uid in owned))


async def _delete(client: Client, pods: PodCache, job: DeepSpeedJob, pod: DeletePod) -> None:
    namespace = job.metadata.namespace
    try:
        answer = await client.delete(
            PODS, namespace, pod.name, uid=pod.uid, version=pod.resource_version, forced=pod.forced
        )
    except ApiError as error:
        if error.status not in {404, 409}:
            raise
        live = await read(client, PODS, namespace, pod.name)
        if live is not None:
            pods.put(pod_view(live, now()))
        if live is None or live["metadata"]["uid"] != pod.uid:
            pods.remove(job_key(job), pod.name, pod.uid)
        return
    # A pod that ends gracefully is answered with its deletionTimestamp; one that never ran is gone at once.
    if answer["kind"] == "Pod" and answer["metadata"].get("deletionGracePeriodSeconds"):
        pods.put(pod_view(answer, now()))
    else:
        pods.remove(job_key(job), pod.name, pod.uid)
