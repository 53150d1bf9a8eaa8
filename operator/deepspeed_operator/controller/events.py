"""Kubernetes Events about jobs: each told once an occurrence, slowly, and never in the way of anything.

Those that wait are lost with the process: an event announces what the job's status says, or what a user has asked for.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import API_VERSION, KIND, OPERATOR
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.clock import now, steady
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.fairness import Turns
from deepspeed_operator.controller.ratelimit import RateLimiter
from deepspeed_operator.controller.resources import EVENTS, Json
from deepspeed_operator.reconcile.actions import JobEvent

NOTE_LENGTH = 1024  # the API's limit, in bytes
PER_SECOND, BURST = 10.0, 50.0
MOST_WAITING = 1000  # of a namespace
REMEMBERED = 10_000
LASTS_SECONDS = 3600.0  # as long as the API server keeps an Event: later nobody asks for it
LONGEST_PAUSE = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    body: Json
    since: float


class EventRecorder:
    """Posts Events in the background; one that an API server in trouble does not take is tried again."""

    def __init__(self, client: Client, identity: str) -> None:
        self._client = client
        self._identity = identity
        self._turns: Turns[str] = Turns()  # names
        self._waiting: dict[str, _Waiting] = {}  # by name
        self._arrival = asyncio.Event()
        self._told: OrderedDict[str, None] = OrderedDict()  # names, posted or waiting
        self._limiter = RateLimiter(PER_SECOND, BURST)

    def record(self, job: DeepSpeedJob, events: Iterable[JobEvent], occurrence: str) -> None:
        """Have the events posted, but for those that were told of this occurrence already.

        `occurrence`: what is another one the next time that the same is to be told, such as the version of a status.
        """
        for event in events:
            text = f"{job.metadata.uid} {event.reason} {event.message} {occurrence}"
            name = f"{job.metadata.name}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"
            if name in self._told:
                continue
            self._told[name] = None
            if len(self._told) > REMEMBERED:
                self._told.popitem(last=False)
            self._put(name, job.metadata.namespace, _Waiting(self._body(job, event, name), steady()))

    async def run(self) -> None:
        """Post until cancelled."""
        failures = 0
        while True:
            name, namespace, waiting = await self._next()
            await self._limiter.acquire()
            try:
                await self._client.create(EVENTS, namespace, waiting.body)
            except ApiError as error:
                # Told by an earlier process or request already: a name is made of words and occurrence.
                if error.already_exists:
                    pass
                elif error.transient and steady() - waiting.since < LASTS_SECONDS:
                    failures += 1
                    self._put(name, namespace, waiting)
                    await asyncio.sleep(min(2.0 ** min(failures, 16), LONGEST_PAUSE))
                    continue
                else:
                    _log.warning("Event %s was not posted: %s", name, error)
            failures = 0

    def _put(self, name: str, namespace: str, waiting: _Waiting) -> None:
        if self._turns.count(namespace) >= MOST_WAITING:
            oldest = self._turns.next(lambda each: each == namespace)
            assert oldest is not None, "there are so many"
            del self._waiting[oldest[1]]
            _log.warning("Event %s is dropped: too many of namespace %s wait", oldest[1], namespace)
        self._waiting[name] = waiting
        self._turns.add(namespace, name)
        self._arrival.set()

    async def _next(self) -> tuple[str, str, _Waiting]:
        while (turn := self._turns.next()) is None:
            self._arrival.clear()
            await self._arrival.wait()
        namespace, name = turn
        return name, namespace, self._waiting.pop(name)

    def _body(self, job: DeepSpeedJob, event: JobEvent, name: str) -> Json:
        moment = now()
        seconds = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": job.metadata.namespace},
            "eventTime": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            # Why core/v1: kubectl describe sorts by the last of these, which events.k8s.io/v1 forbids.
            "firstTimestamp": seconds,
            "lastTimestamp": seconds,
            "type": event.type,
            "reason": event.reason,
            "message": event.message.encode()[:NOTE_LENGTH].decode(errors="ignore"),
            "action": "Reconcile",
            "reportingComponent": f"{API_VERSION.split('/')[0]}/{OPERATOR}",
            "reportingInstance": self._identity[:128],
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": job.metadata.namespace,
                "name": job.metadata.name,
                "uid": job.metadata.uid,
                "resourceVersion": job.metadata.resource_version,
            },
        }
