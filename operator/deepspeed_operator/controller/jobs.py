"""DeepSpeedJobs: kopf watches them; a sweep finds those whose deletion kopf's stream missed."""

import asyncio
import logging
import random
from collections.abc import Iterator
from typing import Any, cast

import kopf
from pydantic import ValidationError

from deepspeed_operator.api.names import GROUP, PLURAL, VERSION
from deepspeed_operator.controller.bodies import Bodies
from deepspeed_operator.controller.cache import JobCache
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.connection import Connection, connect
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.metrics import INVALID_JOBS
from deepspeed_operator.controller.queue import Key
from deepspeed_operator.controller.resources import JOBS, Json

SWEEP_SECONDS = 300.0
KOPF_CONNECTIONS = 16

_log = logging.getLogger(__name__)


class JobFeed:
    """Brings what is told about jobs into the cache."""

    def __init__(self, client: Client, cache: JobCache, bodies: Bodies, namespaces: tuple[str, ...]) -> None:
        self._client = client
        self._cache = cache
        self._bodies = bodies
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._unreadable: set[Key] = set()
        self._relisted = asyncio.Event()
        self.synced = asyncio.Event()

    @property
    def watches(self) -> int:
        """Streams that kopf holds open: one a namespace, or one for all."""
        return len(self._namespaces)

    def tell(self, event_type: str | None, body: Json) -> None:
        """Take in one event of the watch; type None is an item of a list."""
        metadata: Json = body["metadata"]
        key: Key = metadata["namespace"], metadata["name"]
        if event_type == "DELETED":
            self._cache.ended(key, metadata["uid"], int(metadata["resourceVersion"]))
            self._note_unreadable(key, unreadable=False)
            return
        if event_type is None:
            self._relisted.set()
        self._take(key, body)

    async def run(self) -> None:
        """List once, then sweep now and then, and whenever the watch began anew."""
        await self._until_done(metadata=False)
        self.synced.set()
        while True:
            pause = SWEEP_SECONDS * random.uniform(0.9, 1.1)  # noqa: S311 -- spreads load
            try:
                await asyncio.wait_for(self._relisted.wait(), pause)
                await asyncio.sleep(1.0)  # the rest of kopf's list arrives
            except TimeoutError:
                pass  # the watch never began anew: time for a sweep all the same
            self._relisted.clear()
            await self._until_done(metadata=True)

    async def _until_done(self, *, metadata: bool) -> None:
        while True:
            try:
                for namespace in self._namespaces:
                    await self._list(namespace, metadata=metadata)
            except ApiError as error:
                _log.warning("Could not list DeepSpeedJobs: %s", error)
                await asyncio.sleep(random.uniform(1.0, 5.0))  # noqa: S311 -- jitter
            else:
                return

    async def _list(self, namespace: str | None, *, metadata: bool) -> None:
        present: dict[Key, str] = {}
        unreadable = {key for key in self._unreadable if namespace in {None, key[0]}}
        version = ""
        async for page in self._client.pages(JOBS, namespace, metadata=metadata):
            version = page["metadata"]["resourceVersion"]
            for item in page["items"] or ():  # a list of partial metadata says null where it is empty
                key: Key = item["metadata"]["namespace"], item["metadata"]["name"]
                present[key] = item["metadata"]["uid"]
                if not metadata:
                    self._take(key, item)
        self._cache.retain(namespace, present, int(version))
        self._note_unreadable(*(unreadable - present.keys()), unreadable=False)

    def _take(self, key: Key, body: Json) -> None:
        try:
            self._cache.put(self._bodies.job(body))
        except ValidationError as error:
            _log.warning("DeepSpeedJob %s/%s cannot be read and is left alone: %s", *key, error)
            self._cache.remove(key, body["metadata"]["uid"])
            self._note_unreadable(key, unreadable=True)
        else:
            self._note_unreadable(key, unreadable=False)

    def _note_unreadable(self, *keys: Key, unreadable: bool) -> None:
        (self._unreadable.update if unreadable else self._unreadable.difference_update)(keys)
        INVALID_JOBS.set(len(self._unreadable))


def job_registry(feed: JobFeed) -> kopf.OperatorRegistry:
    """Tell kopf how to log in and whom to tell about jobs."""
    registry = kopf.OperatorRegistry()

    async def log_in(**_: Any) -> kopf.AiohttpSession:
        # Called again when the server says 401: tokens are read anew.
        connection = await connect()
        return await _kopf_session(connection, KOPF_CONNECTIONS + feed.watches)

    async def tell(event: Any, **_: Any) -> None:
        raw = cast("Json", event)
        feed.tell(raw["type"], raw["object"])

    kopf.on.login(registry=registry)(log_in)
    kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)(tell)
    return registry


async def _kopf_session(connection: Connection, limit: int) -> kopf.AiohttpSession:
    session = connection.session(limit, await connection.authorization())
    return kopf.AiohttpSession(server=connection.server, aiohttp_session=session)


class _EndlessBackoffs:
    """An API server that is away must not end the process: its restart would not bring it back."""

    def __iter__(self) -> Iterator[float]:
        delay = 0.2
        while True:
            yield delay * random.uniform(0.5, 1.0)  # noqa: S311 -- jitter
            delay = min(delay * 2, 30.0)


class _NoDifferences(kopf.DiffBaseStorage):
    """Nobody asks kopf what has changed: comparing copies of each job is half of what its watch costs."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        pass


def kopf_settings() -> kopf.OperatorSettings:
    """Use kopf as a watch and nothing else: no annotations, finalizers, peering, scanning or events."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.persistence.diffbase_storage = _NoDifferences()
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.enforce_retry_after = True
    settings.networking.error_backoffs = _EndlessBackoffs()  # pyright: ignore[reportAttributeAccessIssue] -- iterated only
    settings.watching.server_timeout = 600
    settings.watching.client_timeout = 630
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = 500
    settings.queueing.idle_timeout = 0.1
    settings.queueing.exit_timeout = 0.5
    settings.process.ultimate_exiting_timeout = 10
    return settings
