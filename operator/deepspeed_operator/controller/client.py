"""A thin JSON client of the API server: plain dictionaries, retries that obey the server, a limit on writes.

The typed models of the official client refuse valid objects (integer quantities, newer fields) and cost more than
the request itself; its configuration loading and its leader election are used.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal, cast

import aiohttp

from deepspeed_operator.controller.clock import CLOCK, steady
from deepspeed_operator.controller.connection import UNLIMITED, Connection, connect
from deepspeed_operator.controller.errors import ApiError, api_error
from deepspeed_operator.controller.lists import METADATA, METADATA_LIST, decode_list
from deepspeed_operator.controller.metrics import API_ERRORS, READS, REQUEST_SECONDS, WRITES
from deepspeed_operator.controller.ratelimit import RateLimiter
from deepspeed_operator.controller.resources import Json, Resource

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]

PAGE = 100  # objects of a list; a pod may have half a megabyte
LONGEST_REQUEST = 30.0
WATCH_SECONDS = 300
# The API server sends a bookmark a minute: a stream that is silent for longer is dead.
WATCH_SILENCE_SECONDS = 90.0
ATTEMPTS = 6
LONGEST_PAUSE = 60.0

_METHODS: dict[Verb, str] = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
_RETRIED = frozenset({429, 500, 502, 503, 504})


class Client:
    """Every call is safe to repeat: names are deterministic, updates and deletes carry preconditions.

    `qps`: writes a second; None for as many as come.
    """

    def __init__(self, connection: Connection, *, qps: float | None, in_flight: int) -> None:
        self._connection = connection
        self._session = connection.session(in_flight)
        # Watches live for minutes: apart, so that they never take a place from a request, and one for each namespace.
        self._streams = connection.session(UNLIMITED)
        self._limiter = None if qps is None else RateLimiter(qps, burst=max(1.0, qps))

    async def close(self) -> None:
        await self._session.close()
        await self._streams.close()

    async def get(self, resource: Resource, namespace: str, name: str, *, metadata: bool = False) -> Json:
        """Read one object; with `metadata`, nothing but its metadata."""
        accept = METADATA if metadata else None
        return await self._request("get", resource.path(namespace, name), resource, accept=accept)

    async def get_path(self, path: str) -> Json:
        """Read something that is not an object, such as /version."""
        return await self._request("get", path, None)

    async def pages(
        self,
        resource: Resource,
        namespace: str | None,
        project: Callable[[Json], Any],
        *,
        selector: str = "",
        metadata: bool = False,
        limit: int = PAGE,
    ) -> AsyncIterator[Json]:
        """Read a collection as it is now, page by page, with what `project` keeps of each object as the items.

        With `metadata`, the objects have nothing but that. ApiError 410 if the collection changed too much meanwhile.
        """
        query = {"limit": str(limit), **({"labelSelector": selector} if selector else {})}
        accept = METADATA_LIST if metadata else None
        while True:
            page = await self._request(
                "list",
                resource.path(namespace),
                resource,
                query=query,
                accept=accept,
                decode=lambda content: decode_list(content, project),
            )
            yield page
            token = page["metadata"].get("continue", "")
            if not token:
                return
            query["continue"] = token

    async def watch(
        self, resource: Resource, namespace: str | None, *, since: str, selector: str = ""
    ) -> AsyncIterator[Json]:
        """Yield watch events until the server ends the stream; an error in the stream is raised."""
        READS.labels("watch", resource.kind).inc()
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "labelSelector": selector,
            "timeoutSeconds": str(random.randint(WATCH_SECONDS, 2 * WATCH_SECONDS)),  # noqa: S311 -- spreads load
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=WATCH_SILENCE_SECONDS)
        url = self._connection.server + resource.path(namespace)
        headers = await self._connection.authorization()
        async with self._streams.get(
            url, params=query, headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            if response.status >= 300:
                API_ERRORS.labels(response.status).inc()
                raise api_error(response.status, response.headers, await response.read())
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = cast("Json", json.loads(line))
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise api_error(int(status.get("code", 500)), {}, json.dumps(status).encode())
                    yield event

    async def create(self, resource: Resource, namespace: str, body: Json, *, dry_run: bool = False) -> Json:
        """Create an object, or with `dry_run` ask whether it would be accepted; return its metadata.

        A field that the server does not know is refused: dropped, it would be missed without a word.
        The rest would be what was sent, with defaults: encoding and parsing it is a third of a create's cost here.
        """
        query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        path = resource.path(namespace)
        return await self._request(
            "create", path, resource, namespace=namespace, query=query, body=body, accept=METADATA
        )

    async def replace(self, resource: Resource, namespace: str, body: Json, subresource: str | None = None) -> Json:
        """Replace an object or its status; with a resourceVersion in it, only that version."""
        path = resource.path(namespace, body["metadata"]["name"], subresource)
        return await self._request("update", path, resource, namespace=namespace, body=body)

    async def patch(self, resource: Resource, namespace: str, body: Json, subresource: str | None = None) -> Json:
        """Merge this into an object or its status; with a resourceVersion in it, only into that version."""
        path = resource.path(namespace, body["metadata"]["name"], subresource)
        return await self._request("patch", path, resource, namespace=namespace, body=body)

    async def deletable(self, resource: Resource, namespace: str, name: str) -> bool:
        """Say whether an object is there that we could delete: so much can be known of one that may not be read.

        In the background: who asks for another way of deletion is shown the object.
        """
        query = {"dryRun": "All", "propagationPolicy": "Background"}
        try:
            await self._request("delete", resource.path(namespace, name), resource, query=query)
        except ApiError as error:
            if error.status in {403, 404}:
                return False
            raise
        return True

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        version: str | None = None,
        forced: bool = False,
    ) -> Json:
        """Delete an object; with a uid and resourceVersion, nothing but that one. `forced` waits for no node."""
        preconditions = {"uid": uid, "resourceVersion": version}
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if forced:
            options["gracePeriodSeconds"] = 0
        if conditions := {key: value for key, value in preconditions.items() if value is not None}:
            options["preconditions"] = conditions
        return await self._request(
            "delete", resource.path(namespace, name), resource, namespace=namespace, body=options
        )

    async def _request(
        self,
        verb: Verb,
        path: str,
        resource: Resource | None,
        *,
        namespace: str = "",
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        accept: str | None = None,
        decode: Callable[[bytes], Json] = json.loads,
    ) -> Json:
        kind = resource.kind if resource else "none"
        writes = verb in _METHODS
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        for attempt in range(1, ATTEMPTS + 1):
            if writes and self._limiter is not None:
                await self._limiter.acquire(namespace)
            (WRITES if writes else READS).labels(verb, kind).inc()
            try:
                with REQUEST_SECONDS.labels(verb).time():
                    content = await self._send(_METHODS.get(verb, "GET"), path, query or {}, data, accept)
                return decode(content)
            except ApiError as error:
                API_ERRORS.labels(error.status).inc()
                if error.status == 401 and attempt == 1:
                    await self._log_in_again()
                    continue
                if error.status not in _RETRIED or attempt == ATTEMPTS:
                    raise
                pause = _backoff(attempt) if error.retry_after is None else error.retry_after
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                API_ERRORS.labels("connection").inc()
                if attempt == ATTEMPTS:
                    raise ApiError(0, "Unreachable", f"{type(error).__name__}: {error}") from error
                pause = _backoff(attempt)
            await asyncio.sleep(min(pause, LONGEST_PAUSE))
        raise AssertionError("the last attempt returns or raises")

    async def _send(
        self, method: str, path: str, query: Mapping[str, str], data: bytes | None, accept: str | None
    ) -> bytes:
        headers = {"Accept": accept or "application/json", **await self._connection.authorization()}
        if data is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        timeout = aiohttp.ClientTimeout(total=LONGEST_REQUEST, sock_connect=10)
        url = self._connection.server + path
        sent_at = steady()
        async with self._session.request(
            method, url, params=query, data=data, headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            CLOCK.correct(response.headers.get("Date"), sent_at)
            content = await response.read()
            if response.status >= 300:
                raise api_error(response.status, response.headers, content)
            return content

    async def _log_in_again(self) -> None:
        """Read the credentials anew: a kubeconfig's token may have been replaced."""
        self._connection.configuration = (await connect()).configuration


def _backoff(attempt: int) -> float:
    return 0.1 * 2**attempt * random.uniform(0.5, 1.0)  # noqa: S311 -- jitter
