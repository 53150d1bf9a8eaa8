"""The Lease as the official client's election loop wants it, on our own client.

The library's own lock cannot create a Lease (its typed client refuses the lock's arguments), writes local time as UTC,
has no deadlines, and lets a broken connection end the loop.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.baselock import BaseLock

from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.resources import LEASES, Json

_log = logging.getLogger(__name__)


class Lease(BaseLock):
    """Requests end in time; their failures are failures to get or renew the Lease, nothing more."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        deadline: float,
        renewed: Callable[[float], bool],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(name, namespace, identity)
        self._client = client
        self._deadline = deadline
        self._renewed = renewed
        self._clock = clock
        self._live: Json = {}
        self._gone_at: float | None = None  # since when a Lease that was there is not

    async def get(
        self, name: str, namespace: str
    ) -> tuple[bool, LeaderElectionRecord] | tuple[bool, Exception] | tuple[bool, None]:
        try:
            async with asyncio.timeout(self._deadline):
                self._live = await self._client.get(LEASES, namespace, name)
                self._gone_at = None
        except (ApiError, TimeoutError) as error:
            if isinstance(error, ApiError) and error.not_found and self._live and self._gone_at is None:
                self._gone_at = self._clock()
            return False, _as_the_loop_reads_it(error)
        spec: Json = self._live.get("spec", {})
        duration = spec.get("leaseDurationSeconds")
        return True, LeaderElectionRecord(
            spec.get("holderIdentity") or None,
            None if duration is None else str(duration),
            spec.get("acquireTime"),
            spec.get("renewTime"),
        )

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        # An uninstallation takes the Lease away a moment before the pods: it would be left behind.
        if self._gone_at is not None and self._clock() - self._gone_at < self._deadline:
            return False
        spec = self._spec(election_record, {})
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": name}, "spec": spec}
        return await self._in_time(self._client.create(LEASES, namespace, body))

    async def update(
        self,
        name: str,  # noqa: ARG002 -- it is in the object that was read
        namespace: str,
        updated_record: LeaderElectionRecord,
    ) -> bool:
        spec = self._spec(updated_record, self._live.get("spec", {}))
        return await self._in_time(self._client.replace(LEASES, namespace, {**self._live, "spec": spec}))

    def _spec(self, record: LeaderElectionRecord, before: Json) -> Json:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        kept = before.get("holderIdentity") == record.holder_identity
        return {
            "holderIdentity": record.holder_identity,
            "leaseDurationSeconds": int(record.lease_duration or 0),
            "acquireTime": before.get("acquireTime", now) if kept else now,
            "renewTime": now,
            "leaseTransitions": before.get("leaseTransitions", 0) + (1 if before and not kept else 0),
        }

    async def _in_time(self, request: Awaitable[Json]) -> bool:
        sent_at = self._clock()
        try:
            async with asyncio.timeout(self._deadline):
                self._live = await request
        except (ApiError, TimeoutError) as error:
            _log.warning("Could not write the Lease: %s", error or type(error).__name__)
            return False
        return self._renewed(sent_at)


def _as_the_loop_reads_it(error: ApiError | TimeoutError) -> ApiException:
    status, reason = (error.status, error.reason) if isinstance(error, ApiError) else (0, "no answer in time")
    return ApiException(status=status, reason=reason, body=json.dumps({"code": status}))
