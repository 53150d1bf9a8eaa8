"""Probes and metrics over HTTP: /healthz, /readyz, /metrics."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from deepspeed_operator.api.status import State
from deepspeed_operator.controller.cache import JobCache
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

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner


def _answer(trouble: str | None, good: str) -> web.Response:
    return web.Response(status=200, text=good) if trouble is None else web.Response(status=503, text=trouble)


class JobsByState(Collector):
    """Counts jobs when Prometheus asks the replica that leads, as it last read them."""

    def __init__(self, jobs: JobCache, leadership: Leadership) -> None:
        self._jobs = jobs
        self._leadership = leadership

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily("deepspeed_operator_jobs", "DeepSpeedJobs by state", labels=["state"])
        if self._leadership.acquired.is_set():
            counts = Counter(job.state for job in self._jobs.values() if job.read)
            for state in State:
                family.add_metric([state.value], counts[state])
            family.add_metric(["New"], counts[None])
        yield family


def register_jobs_by_state(jobs: JobCache, leadership: Leadership) -> None:
    REGISTRY.register(JobsByState(jobs, leadership))
