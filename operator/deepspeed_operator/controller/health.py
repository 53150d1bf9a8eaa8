"""Probes and metrics over HTTP: /healthz, /readyz, /metrics."""

import asyncio
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from deepspeed_operator.controller.leader import Leadership


@dataclass(slots=True)
class Health:
    """What the probes look at."""

    leadership: Leadership
    problem: str | None = "starting"  # why the operator cannot work, for people
    syncing: list[asyncio.Event] = field(default_factory=list[asyncio.Event])

    def report(self, problem: str | None) -> None:
        """Note why the operator cannot work, or that it can."""
        self.problem = problem

    def why_not_ready(self) -> str | None:
        """Why jobs are not served."""
        if self.problem is None and not all(event.is_set() for event in self.syncing):
            return "the caches are being filled"
        return self.problem


async def serve(health: Health, host: str, port: int) -> web.AppRunner:
    """Answer probes until the runner is cleaned up."""

    async def healthz(_: web.Request) -> web.Response:
        # The event loop turns. A restart helps against nothing else: what fails is retried, or ends the process itself.
        return web.Response(text="ok")

    async def readyz(_: web.Request) -> web.Response:
        return _answer(health.why_not_ready(), "leading" if health.leadership.acquired.is_set() else "standing by")

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(REGISTRY), headers={"Content-Type": content_type})

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner


def _answer(trouble: str | None, good: str) -> web.Response:
    return web.Response(status=200, text=good) if trouble is None else web.Response(status=503, text=trouble)
