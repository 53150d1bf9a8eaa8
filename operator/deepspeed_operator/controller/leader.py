"""One replica writes: a Lease, elected by the official client's loop, and the question whether it is still ours.

The loop is used as it is, but a writer cannot rely on three things in it: a request that hangs outlives the renew
deadline, an error other than the server's ends the loop, and times are the wall clock's. So its lock is wrapped:
requests have deadlines, errors are failures to renew, and `check` asks a clock that goes on while the process is
stopped.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.connection import Connection
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.metrics import LEADER
from deepspeed_operator.controller.resources import LEASES
from deepspeed_operator.controller.settings import LeaderSettings

_log = logging.getLogger(__name__)


class NotLeadingError(Exception):
    """The Lease is not known to be ours at this moment: nothing may be written."""


class Leadership:
    """Whether this process may write."""

    def __init__(self, settings: LeaderSettings, namespace: str, identity: str) -> None:
        self._settings = settings
        self._namespace = namespace
        self._identity = identity
        self._renewed_at: float | None = None
        self._lost = False
        self.acquired = asyncio.Event()

    def fresh(self) -> bool:
        """Whether the last renewal is so recent that nobody else can have taken the Lease.

        Once lapsed it stays lapsed: another leader may have come and gone, so that what this process knows is stale.
        """
        if not self._settings.enabled:
            return True
        if self._renewed_at is not None and _now() - self._renewed_at > self._settings.renew_deadline:
            self._lost = True
        return self._renewed_at is not None and not self._lost

    def check(self) -> None:
        """Raise NotLeadingError unless the Lease is fresh."""
        if not self.fresh():
            raise NotLeadingError("the Lease was not renewed in time")

    async def run(self, connection: Connection) -> None:
        """Compete for the Lease, then hold it; returns when it is lost."""
        if not self._settings.enabled:
            self.acquired.set()
            LEADER.set(1)
            await asyncio.Event().wait()
        async with ApiClient(connection.configuration) as api:
            lock = _DeadlineLock(self._settings, self._namespace, self._identity, api, self)
            config = Config(
                lock,
                lease_duration=self._settings.lease_duration,
                renew_deadline=self._settings.renew_deadline,
                retry_period=self._settings.retry_period,
                onstarted_leading=self._started,
                onstopped_leading=self._stopped,
            )
            await LeaderElection(config).run()

    async def release(self, client: Client) -> None:
        """Give the Lease to whoever wants it, if it is ours."""
        if not self._settings.enabled or not self.acquired.is_set():
            return
        self._lost = True
        LEADER.set(0)
        try:
            lease = await client.get(LEASES, self._namespace, self._settings.name)
            if lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await client.replace(LEASES, self._namespace, lease)
                _log.info("Released the Lease")
        except ApiError as error:
            _log.warning("Could not release the Lease, it will expire: %s", error)

    def renewed(self, sent_at: float) -> bool:
        """Note a renewal by when its request was sent; False if it came too late to go on."""
        if self._renewed_at is not None and not self.fresh():
            return False
        self._renewed_at = sent_at
        return True

    async def _started(self) -> None:
        _log.info("Leading as %s", self._identity)
        LEADER.set(1)
        self.acquired.set()

    async def _stopped(self) -> None:
        LEADER.set(0)


class _DeadlineLock(LeaseLock):
    """The Lease, with requests that end in time and failures that are only failures."""

    def __init__(
        self, settings: LeaderSettings, namespace: str, identity: str, api: ApiClient, leadership: Leadership
    ) -> None:
        super().__init__(settings.name, namespace, identity, api)
        self._deadline = settings.renew_deadline / 2
        self._leadership = leadership

    async def get(
        self, name: str, namespace: str
    ) -> tuple[bool, LeaderElectionRecord] | tuple[bool, Exception] | tuple[bool, None]:
        try:
            async with asyncio.timeout(self._deadline):
                return await super().get(name, namespace)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return False, ApiException(status=0, reason=f"{type(error).__name__}: {error}")

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        return await self._in_time(super().create(name, namespace, election_record))

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        return await self._in_time(super().update(name, namespace, updated_record))

    async def _in_time(self, request: Awaitable[bool]) -> bool:
        sent_at = _now()
        try:
            async with asyncio.timeout(self._deadline):
                return await request and self._leadership.renewed(sent_at)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.warning("Could not write the Lease: %s: %s", type(error).__name__, error)
            return False


def _now() -> float:
    """Seconds that also pass while the process or its machine is stopped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
