"""Keeps a cache true: a list, then a watch, and a new list whenever the watch cannot go on.

A list replaces what was known, so that deletions are seen that happened while nobody watched.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import aiohttp

from deepspeed_operator.api.names import OPERATOR
from deepspeed_operator.controller.cache import PodCache, WorkloadCache
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.clock import now
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.metrics import RELISTS
from deepspeed_operator.controller.resources import PODS, WORKLOADS, Json, Resource
from deepspeed_operator.reconcile.observe.pods import PodView, pod_view
from deepspeed_operator.reconcile.observe.workload_view import WorkloadView, workload_view

SELECTOR = f"app.kubernetes.io/managed-by={OPERATOR}"
LONGEST_BACKOFF = 30.0

_log = logging.getLogger(__name__)


class View(Protocol):
    """What is kept of an object."""

    @property
    def uid(self) -> str: ...


Kept = TypeVar("Kept", bound=View)
Told_contra = TypeVar("Told_contra", bound=View, contravariant=True)


class Cache(Protocol[Told_contra]):
    """Where what is seen goes."""

    def put(self, view: Told_contra, /) -> None: ...
    def ended(self, view: Told_contra, /) -> None: ...
    def retain(self, namespace: str | None, uids: set[str], version: int) -> None: ...


class Informer(Generic[Kept]):
    """Watches the objects of a kind with our label, in one namespace, or in all."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        cache: Cache[Kept],
        namespace: str | None,
        project: Callable[[Json], Kept | None],
    ) -> None:
        self._client = client
        self._resource = resource
        self._cache = cache
        self._namespace = namespace
        self._project = project
        self._failures = 0
        self._version: str | None = None
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Follow them until cancelled."""
        while True:
            try:
                if self._version is None:
                    await self._list()
                    self.synced.set()
                await self._follow()
            except ApiError as error:
                # What the stream told before it broke is kept; only an expired version needs a new list.
                if error.expired:
                    self._version = None
                elif error.status in {403, 404}:  # the kind is gone, or forbidden
                    self._version = None
                    self.synced.clear()
                await self._pause(error)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                await self._pause(error)

    async def _list(self) -> None:
        RELISTS.inc()
        uids: set[str] = set()
        version = ""
        async for page in self._client.pages(self._resource, self._namespace, self._project, selector=SELECTOR):
            version = page["metadata"]["resourceVersion"]
            views: list[Kept | None] = page["items"]
            for view in views:
                if view is not None:
                    uids.add(view.uid)
                    self._cache.put(view)
        self._cache.retain(self._namespace, uids, int(version))
        self._progress(version)

    async def _follow(self) -> None:
        assert self._version is not None
        async for event in self._client.watch(self._resource, self._namespace, since=self._version, selector=SELECTOR):
            item: Json = event["object"]
            if event["type"] == "DELETED":
                if view := self._project(item):
                    self._cache.ended(view)
            elif event["type"] != "BOOKMARK" and (view := self._project(item)):
                self._cache.put(view)
            self._progress(item["metadata"]["resourceVersion"])

    def _progress(self, version: str) -> None:
        self._version = version
        self._failures = 0

    async def _pause(self, error: Exception) -> None:
        self._failures += 1
        pause = min(0.2 * 2 ** min(self._failures, 16), LONGEST_BACKOFF)
        if isinstance(error, ApiError) and error.retry_after is not None:
            pause = error.retry_after
        _log.log(
            logging.INFO if self._failures < 3 else logging.WARNING,
            "Watch of %s broke: %s",
            self._resource.plural,
            error,
        )
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 -- jitter


class PodInformer(Informer[PodView]):
    """Watches the pods of jobs."""

    def __init__(self, client: Client, cache: PodCache, namespace: str | None) -> None:
        super().__init__(client, PODS, cache, namespace, projected)


class WorkloadInformer(Informer[WorkloadView]):
    """Watches the Workloads of jobs, once anybody asks for one: where no job has a queue, it costs nothing."""

    def __init__(self, client: Client, cache: WorkloadCache, namespace: str | None) -> None:
        super().__init__(client, WORKLOADS, cache, namespace, readable)
        self.wanted = asyncio.Event()

    async def run(self) -> None:
        await self.wanted.wait()
        await super().run()


def projected(pod: Json) -> PodView | None:
    """Project a pod of ours; None for a stranger's that carries our managed-by label."""
    try:
        return pod_view(pod, now())
    except (KeyError, ValueError) as error:
        metadata: Json = pod["metadata"]
        _log.debug("Pod %s/%s is not ours: %r", metadata.get("namespace"), metadata["name"], error)
        return None


def readable(workload: Json) -> WorkloadView | None:
    """Project a Workload; None for one that cannot be read, which must not keep others' news from their jobs."""
    try:
        return workload_view(workload)
    except (KeyError, ValueError) as error:
        metadata: Json = workload["metadata"]
        _log.warning("Workload %s/%s cannot be read: %s", metadata.get("namespace"), metadata.get("name"), error)
        return None
