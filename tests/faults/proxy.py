"""An HTTP proxy in front of the API server that a test can make misbehave."""

import asyncio
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

QUIET_SECONDS = 3
MOST_LOOKS = 20
NOT_FORWARDED = frozenset({"Host", "Content-Length", "Transfer-Encoding", "Connection", "Accept-Encoding"})


@dataclass(frozen=True, slots=True)
class Request:
    """What the operator asked."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    number: int  # from 1, of all requests

    @property
    def writes(self) -> bool:
        """Whether it would change something that counts: dry runs, Leases and Events do not."""
        counted = self.method in {"POST", "PUT", "PATCH", "DELETE"} and "dryRun" not in self.query
        return counted and not {"leases", "events"} & set(self.path.split("/"))

    @property
    def watches(self) -> bool:
        return "watch" in self.query

    def creates(self, plural: str) -> bool:
        """Whether it would create an object of this kind."""
        return self.method == "POST" and self.path.endswith(f"/{plural}") and "dryRun" not in self.query


@dataclass(frozen=True, slots=True)
class Answer:
    """What the operator gets."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict[str, str])


class NoAnswer(Exception):  # noqa: N818 -- not an error: the test wants it
    """The connection ends without an answer."""


Forward = Callable[[], Awaitable[Answer]]
Interceptor = Callable[[Request, Forward], Awaitable[Answer]]


async def honest(_: Request, forward: Forward) -> Answer:
    return await forward()


def refusal(status: int, reason: str, message: str = "as the test wants it", **headers: str) -> Answer:
    """Return an error as the API server writes it."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status} | {
        "reason": reason,
        "message": message,
    }
    return Answer(status, json.dumps(body).encode(), headers)


class Proxy:
    """Passes everything on until an interceptor is set; it runs in the proxy's own thread and event loop."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._server: str = cluster["server"]
        self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._token: str = config["users"][0]["user"]["token"]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._streams: set[asyncio.Task[Any]] = set()
        self.requests: list[Request] = []
        self.intercept: Interceptor = honest
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def kubeconfig(self, directory: Path) -> Path:
        """Write a kubeconfig that leads through the proxy."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
            "clusters": [{"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "proxy", "user": {"token": self._token}}],
        }
        path = directory / f"kubeconfig-{self.port}"
        path.write_text(json.dumps(config))
        return path

    def writes(self) -> list[str]:
        """Return the writes that count so far, as METHOD plural name."""
        return [described(request) for request in self.requests if request.writes]

    def settled_writes(self) -> list[str]:
        """Return the writes that count, once none has followed for a while."""
        for _ in range(MOST_LOOKS):
            written = self.writes()
            time.sleep(QUIET_SECONDS)
            if self.writes() == written:
                return written
        raise AssertionError(f"writes go on: {self.writes()[-10:]}")

    def cut_watches(self) -> None:
        """End all streams in the middle."""
        self._loop.call_soon_threadsafe(lambda: [stream.cancel() for stream in self._streams])

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _start(self) -> None:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=self._tls))
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        for stream in self._streams:
            stream.cancel()
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, incoming: web.Request) -> web.StreamResponse:
        number = len(self.requests) + 1
        request = Request(incoming.method, incoming.path, dict(incoming.query), await incoming.read(), number)
        self.requests.append(request)
        headers = {key: value for key, value in incoming.headers.items() if key not in NOT_FORWARDED}
        url = f"{self._server}{incoming.path_qs}"

        async def forward() -> Answer:
            body = request.body or None  # an empty body would be sent with a type of its own
            async with self._session.request(request.method, url, headers=headers, data=body) as response:
                return Answer(response.status, await response.read(), {"Content-Type": response.content_type})

        try:
            if request.watches:
                refused = await self.intercept(request, _nothing)
                if refused is _STREAM:
                    return await self._stream(incoming, url, headers)
                return web.Response(status=refused.status, body=refused.body, headers=refused.headers)
            answer = await self.intercept(request, forward)
        except NoAnswer:
            if incoming.transport is not None:  # else its client is gone
                incoming.transport.abort()
            raise web.HTTPBadGateway from None
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

    async def _stream(self, incoming: web.Request, url: str, headers: dict[str, str]) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        timeout = aiohttp.ClientTimeout(total=None)
        try:
            async with self._session.get(url, headers=headers, timeout=timeout) as response:
                outgoing = web.StreamResponse(status=response.status)
                await outgoing.prepare(incoming)
                with contextlib.suppress(ConnectionError):  # the operator was killed
                    async for chunk in response.content.iter_any():
                        await outgoing.write(chunk)
                return outgoing
        finally:
            self._streams.discard(task)


_STREAM = Answer(200, b"")


async def _nothing() -> Answer:
    """Stand for a stream, which has no answer to look at."""
    return _STREAM


def described(request: Request) -> str:
    """Name a write by its method, kind and object."""
    parts = request.path.split("/")
    plural = next(index for index, part in enumerate(parts) if part == "namespaces") + 2
    name = json.loads(request.body)["metadata"]["name"] if request.method == "POST" else parts[plural + 1]
    return " ".join([request.method, "/".join([parts[plural], *parts[plural + 2 :]]), name])
