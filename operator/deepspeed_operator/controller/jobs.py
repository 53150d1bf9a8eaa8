"""DeepSpeedJobs: kopf watches their metadata; a sweep finds those whose deletion kopf's stream missed.

Whole they are read one by one, since what kopf parses, and a list has, is of any size.
"""

import asyncio
import logging
import random
from collections.abc import Iterator
from typing import Any, cast

import kopf
from pydantic import ValidationError

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import GROUP, PLURAL, VERSION
from deepspeed_operator.controller.bodies import Bodies, is_unread
from deepspeed_operator.controller.cache import JobCache
from deepspeed_operator.controller.children import read
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.connection import Connection, connect
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.lists import SlimResponse, ask_for_metadata, slim
from deepspeed_operator.controller.metrics import INVALID_JOBS
from deepspeed_operator.controller.queue import Key
from deepspeed_operator.controller.resources import JOBS, Json

SWEEP_SECONDS = 300.0
KOPF_CONNECTIONS = 16
PAGE = 25  # jobs of a list; the managed fields of one may have a megabyte

_log = logging.getLogger(__name__)


class JobFeed:
    """Brings what is told about jobs into the cache."""

    def __init__(self, client: Client, cache: JobCache, namespaces: tuple[str, ...]) -> None:
        self._client = client
        self._cache = cache
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
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
            return
        if event_type is None:
            self._relisted.set()
        self._cache.tell(body)

    async def run(self) -> None:
        """List once, then sweep now and then, and whenever the watch began anew."""
        await self._until_done()
        self.synced.set()
        while True:
            pause = SWEEP_SECONDS * random.uniform(0.9, 1.1)  # noqa: S311 -- spreads load
            try:
                await asyncio.wait_for(self._relisted.wait(), pause)
                await asyncio.sleep(1.0)  # the rest of kopf's list arrives
            except TimeoutError:
                pass  # the watch never began anew: time for a sweep all the same
            self._relisted.clear()
            await self._until_done()

    async def _until_done(self) -> None:
        while True:
            try:
                for namespace in self._namespaces:
                    await self._list(namespace)
            except ApiError as error:
                _log.warning("Could not list DeepSpeedJobs: %s", error)
                await asyncio.sleep(random.uniform(1.0, 5.0))  # noqa: S311 -- jitter
            else:
                return

    async def _list(self, namespace: str | None) -> None:
        present: dict[Key, str] = {}
        version = ""
        async for page in self._client.pages(JOBS, namespace, slim, metadata=True, limit=PAGE):
            version = page["metadata"]["resourceVersion"]
            for item in page["items"]:
                key: Key = item["metadata"]["namespace"], item["metadata"]["name"]
                present[key] = item["metadata"]["uid"]
                self._cache.tell(item)
        self._cache.retain(namespace, present, int(version))


class JobReader:
    """Reads jobs whole, when they are looked at."""

    def __init__(self, client: Client, cache: JobCache, bodies: Bodies) -> None:
        self._client = client
        self._cache = cache
        self._bodies = bodies
        self._unreadable: set[Key] = set()

    async def whole(self, key: Key) -> DeepSpeedJob | None:
        """Return the job as it is now; None if it has gone, or is left alone because it cannot be read."""
        job = self._cache.whole(key)
        if job is not None:
            return job
        record, live = self._cache.get(key), await read(self._client, JOBS, *key)
        if live is None:
            if record is not None:
                self._cache.remove(key, record.uid)
            return None
        return self.take(live)

    def take(self, body: Json) -> DeepSpeedJob | None:
        """Bring a job that the API server has sent into the cache; None if it cannot be read."""
        key: Key = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            job, weight = self._bodies.job(body)
        except ValidationError as error:
            _log.warning("DeepSpeedJob %s/%s cannot be read and is left alone: %s", *key, error)
            self._note_unreadable(key, unreadable=True)
            return None
        self._note_unreadable(key, unreadable=False)
        self._cache.put(job, weight, keep=not is_unread(job))
        return job

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a job that has gone."""
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
    headers = await connection.authorization()
    session = connection.session(limit, headers, response_class=SlimResponse, middlewares=(ask_for_metadata,))
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
    settings.watching.chunk_size = PAGE
    settings.queueing.idle_timeout = 0.1
    settings.queueing.exit_timeout = 0.5
    settings.process.ultimate_exiting_timeout = 10
    return settings
