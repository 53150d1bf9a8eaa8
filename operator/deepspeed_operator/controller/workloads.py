"""Kueue's Workloads: read and written for the jobs that ask for a queue, and watched once any does.

Kueue may come, go, or be forbidden at any time: what is in the way is an answer, in words that say what to do.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.untyped import objects_at
from deepspeed_operator.controller.cache import WorkloadCache, job_key
from deepspeed_operator.controller.children import NamespaceTerminatingError, TryAgainSoonError
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.clock import now
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.informer import WorkloadInformer
from deepspeed_operator.controller.resources import (
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Json,
)
from deepspeed_operator.reconcile.actions import CreateWorkload, DeleteWorkload, OfQueue, PatchWorkload, ReadOfQueue
from deepspeed_operator.reconcile.observe.workload_view import Lookup, WorkloadAnswer, WorkloadView, workload_view

_KINDS: Final = {each.kind: each for each in (RESOURCE_FLAVORS, WORKLOAD_PRIORITY_CLASSES, PRIORITY_CLASSES)}
_ABSENT: Final = (
    "the cluster does not serve kueue.x-k8s.io/v1beta2: ask its administrator to install Kueue (0.15 or newer), or "
    "remove spec.scheduling.queueName and the label kueue.x-k8s.io/queue-name"
)

_log = logging.getLogger(__name__)


def may_be_made(kinds: Json) -> bool:
    """Whether the API server takes Workloads, by what it says of their group; not while their kind is being deleted."""
    verbs = [each["verbs"] for each in objects_at(kinds, "resources") if each["name"] == WORKLOADS.plural]
    return any("create" in each for each in verbs)


class Workloads:
    """Those of all jobs."""

    def __init__(self, client: Client, cache: WorkloadCache, informers: list[WorkloadInformer]) -> None:
        self._client = client
        self._cache = cache
        self._informers = informers
        self._problem: str | None = None

    @property
    def watched(self) -> bool:
        """Whether a watch tells of all that have our label."""
        return all(each.synced.is_set() for each in self._informers)

    def of_job(self, job: DeepSpeedJob) -> WorkloadView | None:
        """Return the Workload that the job's status names; None where no watch tells of one."""
        queue = job.status.queue
        if queue is None or queue.held_workload is None or not self.watched:
            return None
        return self._cache.get(job_key(job), queue.held_workload)

    async def read(self, job: DeepSpeedJob, name: str) -> WorkloadAnswer:
        """Return the Workload of this name; whoever asks for one wants it watched."""
        for informer in self._informers:
            informer.wanted.set()
        live, problem = await self._ask(lambda: self._client.get(WORKLOADS, job.metadata.namespace, name))
        if live is None and problem is None:
            problem = await self._removed()
        self._note(problem)
        return self._answer(name, live, problem)

    async def look_up(self, question: ReadOfQueue) -> Lookup:
        """Return an object of the whole cluster."""
        resource = _KINDS[question.kind]
        live, problem = await self._ask(lambda: self._client.get(resource, "", question.name))
        if live is None and problem is None:
            problem = f"{question.kind} {question.name} is not there: create it, or name another one"
        return Lookup(live, problem, now())

    async def do(self, job: DeepSpeedJob, action: OfQueue) -> WorkloadAnswer:
        """Write it, and return what comes of it; TryAgainSoonError where somebody else's write came between."""
        namespace = job.metadata.namespace
        match action:
            case CreateWorkload(manifest):
                name: str = manifest["metadata"]["name"]
                live, problem = await self._write(name, lambda: self._client.create(WORKLOADS, namespace, manifest))
                if problem is None:  # the answer to a create is no more than metadata
                    return await self.read(job, name)
            case PatchWorkload(name, version, patch, of_status):
                metadata = {**patch.get("metadata", {}), "name": name, "resourceVersion": version}
                body = {**patch, "metadata": metadata}
                subresource = "status" if of_status else None
                live, problem = await self._write(
                    name, lambda: self._client.patch(WORKLOADS, namespace, body, subresource)
                )
                if live is None and problem is None:
                    raise TryAgainSoonError(f"Workload {name} has just gone")
            case DeleteWorkload(name, uid):
                _, problem = await self._write(name, lambda: self._client.delete(WORKLOADS, namespace, name, uid=uid))
                if problem is None:
                    return await self.read(job, name)
                live = None
        return self._answer(name, live, problem)

    async def _removed(self) -> str | None:
        """Return that Kueue's kinds are not served, or about to go: all Workloads go before them, by nobody's will."""
        kinds, problem = await self._ask(lambda: self._client.get_path(f"/apis/{WORKLOADS.api_version}"))
        return problem or (None if may_be_made(kinds or {}) else _ABSENT)

    async def _write(self, name: str, request: Callable[[], Awaitable[Json]]) -> tuple[Json | None, str | None]:
        try:
            return await self._ask(request)
        except ApiError as error:
            if error.namespace_terminating:
                raise NamespaceTerminatingError(error.message) from error
            if error.already_exists:
                return None, None
            if error.status == 409:
                raise TryAgainSoonError(f"Workload {name} was changed meanwhile") from error
            raise

    async def _ask(self, request: Callable[[], Awaitable[Json]]) -> tuple[Json | None, str | None]:
        """Return the answer, None for what is not there, and what is in the way, None where nothing is."""
        try:
            return await request(), None
        except ApiError as error:
            if error.not_found:
                return None, None if error.details.get("name") else _ABSENT
            if error.namespace_terminating or error.status in {409, 429}:
                raise
            if error.lacks_right:
                return None, f"{error.message}: set kueue.enabled in the operator's chart, or ask who may"
            if error.refusal and error.status != 500:
                return None, f"it is refused, do as these words say, or ask the administrator: {error.message}"
            return None, f"the API server answers {error}: look at Kueue's own pods, whose webhook it may be"

    def _answer(self, name: str, live: Json | None, problem: str | None) -> WorkloadAnswer:
        view = workload_view(live) if live is not None else None
        if view is not None:
            self._cache.put(view)
        return WorkloadAnswer(name, view, problem, now())

    def _note(self, problem: str | None) -> None:
        """Log what is in the way when it comes, and that it has gone."""
        if problem == self._problem:
            return
        if problem is not None:
            _log.warning("Jobs that ask for a queue wait: %s", problem)
        else:
            _log.info("Kueue answers again")
        self._problem = problem
