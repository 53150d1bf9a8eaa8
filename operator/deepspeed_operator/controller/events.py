"""Kubernetes Events about jobs: each said once, slowly, and never in the way of anything."""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Iterable

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import API_VERSION, KIND, OPERATOR
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.clock import now
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.ratelimit import RateLimiter
from deepspeed_operator.controller.resources import EVENTS, Json
from deepspeed_operator.reconcile.actions import JobEvent

NOTE_LENGTH = 1024  # the API's limit, in bytes
PER_SECOND, BURST = 10.0, 50.0
QUEUE_LENGTH = 1000
REMEMBERED = 10_000

_log = logging.getLogger(__name__)


class EventRecorder:
    """Posts Events in the background."""

    def __init__(self, client: Client, identity: str) -> None:
        self._client = client
        self._identity = identity
        self._queue: asyncio.Queue[tuple[str, Json]] = asyncio.Queue(QUEUE_LENGTH)
        self._said: OrderedDict[str, None] = OrderedDict()
        self._limiter = RateLimiter(PER_SECOND, BURST)

    def record(self, job: DeepSpeedJob, events: Iterable[JobEvent]) -> None:
        """Have the events posted, but for those that this process has said about the job before."""
        for event in events:
            text = f"{job.metadata.uid} {event.reason} {event.message}"
            name = f"{job.metadata.name}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"
            if name in self._said:
                continue
            self._said[name] = None
            if len(self._said) > REMEMBERED:
                self._said.popitem(last=False)
            try:
                self._queue.put_nowait((job.metadata.namespace, self._body(job, event, name)))
            except asyncio.QueueFull:
                _log.warning("Event %s of %s is dropped: too many wait", event.reason, job.metadata.name)

    async def run(self) -> None:
        """Post until cancelled."""
        while True:
            namespace, body = await self._queue.get()
            await self._limiter.acquire()
            try:
                await self._client.create(EVENTS, namespace, body)
            except ApiError as error:
                # Said by an earlier process already: an event's name is made of its words.
                if not error.already_exists:
                    _log.warning("Event %s was not posted: %s", body["metadata"]["name"], error)

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
