"""One replica's parts, put together."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import kopf

from deepspeed_operator.controller.bodies import Bodies
from deepspeed_operator.controller.cache import JobCache, PodCache, WorkloadCache
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.connection import Connection
from deepspeed_operator.controller.creation import PodCreation
from deepspeed_operator.controller.ended_runs import EndedRuns
from deepspeed_operator.controller.events import EventRecorder
from deepspeed_operator.controller.executor import Executor
from deepspeed_operator.controller.health import Health
from deepspeed_operator.controller.informer import PodInformer, WorkloadInformer
from deepspeed_operator.controller.isolation import Isolation
from deepspeed_operator.controller.job_metrics import JobMetrics, register
from deepspeed_operator.controller.jobs import JobFeed, JobReader, job_registry, kopf_settings
from deepspeed_operator.controller.judges import Judges
from deepspeed_operator.controller.leader import Leadership, NotLeadingError
from deepspeed_operator.controller.loop_lag import watch_loop
from deepspeed_operator.controller.marker import Marker
from deepspeed_operator.controller.prerequisites import wait_for_prerequisites
from deepspeed_operator.controller.questions import Questions
from deepspeed_operator.controller.queue import WorkQueue
from deepspeed_operator.controller.quotas import Quotas
from deepspeed_operator.controller.run_counts import RunCounts
from deepspeed_operator.controller.settings import Settings
from deepspeed_operator.controller.tokens import Tokens
from deepspeed_operator.controller.workloads import Workloads
from deepspeed_operator.delivery import agent_archive
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.render.network_policy import jobs_policy

Part = tuple[str, Coroutine[Any, Any, None]]


class Replica:
    """Watches always; writes while it leads."""

    def __init__(self, settings: Settings, connection: Connection, judges: Judges) -> None:
        self._settings = settings
        self.client = Client(connection, qps=settings.qps, in_flight=2 * settings.in_flight)
        # Its own connections and no limit: a renewal waits neither behind a thousand pods nor for its turn.
        self._lease_client = Client(connection, qps=None, in_flight=2)
        self._leadership = Leadership(settings.leader, settings.namespace, settings.identity)
        self._queue = WorkQueue()
        self.health = Health(self._leadership)
        jobs, pods = JobCache(self._queue.add), PodCache(self._queue.add)
        register(JobMetrics(jobs, self._queue, self._leadership, with_loss=settings.loss_metric))
        marker = Marker(settings.state_directory)
        self._feed = JobFeed(self.client, jobs, settings.watched_namespaces)
        self._informers = [
            PodInformer(self.client, pods, namespace) for namespace in settings.watched_namespaces or (None,)
        ]
        queued = WorkloadCache(self._queue.add)
        self._workload_informers = [
            WorkloadInformer(self.client, queued, namespace) for namespace in settings.watched_namespaces or (None,)
        ]
        workloads = Workloads(self.client, queued, self._workload_informers)
        self._synced = [self._feed.synced, *(informer.synced for informer in self._informers)]
        self.health.syncing = self._synced
        self._events = EventRecorder(self.client, settings.identity)
        installation = Installation(
            agent_archive(),
            settings.worker_image,
            settings.worker_deepspeed_version,
            worker_accelerator=settings.worker_accelerator,
            default_accelerator=settings.default_accelerator,
            reads_nodes=settings.reads_nodes,
            fleet=settings.fleet,
            gangs=settings.gangs,
        )
        policy = jobs_policy(settings.namespace, settings.jobs_ingress) if settings.isolates_jobs else None
        isolation = Isolation(self.client, policy)
        self._judges = judges
        quotas, self._tokens = Quotas(self.client), Tokens()
        reader = JobReader(self.client, jobs, Bodies(marker))
        self._questions = Questions(
            self.client,
            jobs,
            pods,
            judges,
            run_counts=RunCounts(jobs, reader),
            quotas=quotas,
            installation=installation,
            tokens=self._tokens,
            workloads=workloads,
        )
        self._executor = Executor(
            client=self.client,
            jobs=jobs,
            reader=reader,
            pods=pods,
            queue=self._queue,
            events=self._events,
            leadership=self._leadership,
            questions=self._questions,
            quotas=quotas,
            creation=PodCreation(
                self.client, jobs, pods, self._leadership, isolation=isolation, in_flight=settings.in_flight
            ),
            marker=marker,
            installation=installation,
            tokens=self._tokens,
            workloads=workloads,
            ended_runs=EndedRuns(self.client, reader.take),
        )

    async def prepare(self) -> None:
        """Return when there is all that the operator needs; meanwhile health says what there is not."""
        settings = self._settings
        await wait_for_prerequisites(
            self.client,
            self.health.report,
            lambda: self._tokens.load(self.client, settings.namespace, settings.key_secret),
        )

    def watchers(self) -> Iterator[Part]:
        """What only reads, kopf apart."""
        yield "job sweep", self._feed.run()
        yield "event loop", watch_loop()
        for informer in self._informers:
            yield "pod informer", informer.run()
        for informer in self._workload_informers:
            yield "workload informer", informer.run()

    def writers(self) -> Iterator[Part]:
        """What writes, or decides whether anything may."""
        yield "leader election", self._lead()
        yield "events", self._events.run()
        yield "judging", self._judges.run()
        yield "queue", self._work()

    async def engine(self, ready: asyncio.Event, stop: asyncio.Event) -> None:
        """Run kopf until the stop flag is set or a signal reaches it."""
        namespaces = self._settings.watched_namespaces
        await kopf.operator(
            registry=job_registry(self._feed),
            settings=kopf_settings(),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            ready_flag=ready,
            stop_flag=stop,
        )

    async def release(self) -> None:
        """Hand over to another replica."""
        await self._leadership.release(self._lease_client)

    async def close(self) -> None:
        self._judges.close()
        await self._questions.close()
        await self._lease_client.close()
        await self.client.close()

    async def _lead(self) -> None:
        await self._leadership.run(self._lease_client)
        raise NotLeadingError("the Lease is lost; the process ends so that nothing of its state is used again")

    async def _work(self) -> None:
        for synced in self._synced:
            await synced.wait()
        await self._leadership.acquired.wait()
        await self._queue.run(self._executor.work, self._settings.workers)
