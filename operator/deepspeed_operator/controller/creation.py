"""Creating an attempt's pods: in growing batches, never for a job that is gone or without the Lease."""

import asyncio
import random

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.controller.cache import JobCache, PodCache, job_key
from deepspeed_operator.controller.children import RefusedError, TryAgainSoonError, read, refusal_of
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.clock import now
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.fairness import Permits
from deepspeed_operator.controller.isolation import Isolation
from deepspeed_operator.controller.leader import Leadership
from deepspeed_operator.controller.ownership import Owner, describe_owner, owner_of
from deepspeed_operator.controller.resources import JOBS, PODS, Json
from deepspeed_operator.reconcile.observe.pods import pod_view

LARGEST_BATCH = 32
CONFLICTS = 6  # a quota that many pods count against is updated optimistically, and the server gives up before we do


class JobChangedError(Exception):
    """The job is not what was reconciled; the cache knows better now."""


class PodCreation:
    """Creates the pods of one attempt of one job."""

    def __init__(
        self,
        client: Client,
        jobs: JobCache,
        pods: PodCache,
        leadership: Leadership,
        *,
        isolation: Isolation,
        in_flight: int,
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._pods = pods
        self._leadership = leadership
        self._isolation = isolation
        self._permits = Permits(in_flight)

    async def create(self, job: DeepSpeedJob, pods: tuple[Json, ...], *, confirmed: bool) -> None:
        """Create all pods, or raise what came in the way of the first that could not be.

        `confirmed`: the job was the newest a moment ago; else it is read from the API server first.
        """
        if not pods:
            return
        if not confirmed:
            await self.confirm(job)
        await self._isolation.ensure(job.metadata.namespace)
        done, size = 0, 1
        while done < len(pods):
            batch = pods[done : done + size]
            results = await asyncio.gather(*(self._create(job, pod) for pod in batch), return_exceptions=True)
            for result in results:
                if result is not None:
                    raise result
            done, size = done + size, min(2 * size, LARGEST_BATCH)

    async def confirm(self, job: DeepSpeedJob) -> None:
        """Read the job from the API server; JobChangedError if it is another one by now."""
        live = await read(self._client, JOBS, job.metadata.namespace, job.metadata.name, metadata=True)
        if live is None:
            self._jobs.remove(job_key(job), job.metadata.uid)
        elif live["metadata"]["resourceVersion"] != job.metadata.resource_version:
            self._jobs.tell(live)
        else:
            return
        raise JobChangedError

    async def _create(self, job: DeepSpeedJob, pod: Json) -> None:
        for conflicts in range(CONFLICTS):
            # Asked anew before each: the job may have been deleted, or the Lease lost, while others were created.
            current = self._jobs.get(job_key(job))
            if current is None or current.uid != job.metadata.uid or current.leaving:
                raise JobChangedError
            self._leadership.check()
            try:
                async with self._permits.one(job.metadata.namespace):
                    created = await self._client.create(PODS, job.metadata.namespace, pod)
            except ApiError as error:
                if error.already_exists:
                    await self._adopt(job, pod)
                    return
                if not error.conflict or conflicts == CONFLICTS - 1:
                    raise refusal_of(error) from error
                await asyncio.sleep(0.05 * 2**conflicts * random.uniform(0.5, 1.5))  # noqa: S311 -- jitter
            else:
                self._pods.put(pod_view({**pod, "metadata": created["metadata"]}, now()))
                return

    async def _adopt(self, job: DeepSpeedJob, pod: Json) -> None:
        """Take the existing pod of this name for the one that was to be created, if it is."""
        name = pod["metadata"]["name"]
        live = await read(self._client, PODS, job.metadata.namespace, name)
        if live is None:
            raise TryAgainSoonError(f"pod {name} has just gone")
        match owner_of(live, job):
            case Owner.OURS:
                self._pods.put(pod_view(live, now()))
            case Owner.LEAVING:
                raise TryAgainSoonError(f"an old pod {name} is being deleted")
            case Owner.FOREIGN:
                raise RefusedError(
                    f"pod {name} exists and is {describe_owner(live)}: delete it, or give the job another name",
                    name_taken=True,
                )
