"""One replica writes: a Lease, elected by the official client's loop, and the question whether it is still ours.

The loop judges by the wall clock and only between requests. So a writer asks `check` before each create: it judges by a
clock that goes on while the process or its machine is stopped.
"""

import asyncio
import logging

from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection

from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.clock import steady
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.lease import Lease
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
        if self._renewed_at is not None and steady() - self._renewed_at > self._settings.renew_deadline:
            self._lost = True
        return self._renewed_at is not None and not self._lost

    def check(self) -> None:
        """Raise NotLeadingError unless the Lease is fresh."""
        if not self.fresh():
            raise NotLeadingError("the Lease was not renewed in time")

    async def run(self, client: Client) -> None:
        """Compete for the Lease, then hold it; returns when it is lost."""
        if not self._settings.enabled:
            await self._started()
            await asyncio.Event().wait()
        lease = Lease(
            client,
            name=self._settings.name,
            namespace=self._namespace,
            identity=self._identity,
            deadline=self._settings.renew_deadline / 2,
            renewed=self.renewed,
            clock=steady,
        )
        config = Config(
            lease,
            lease_duration=self._settings.lease_duration,
            renew_deadline=self._settings.renew_deadline,
            retry_period=self._settings.retry_period,
            onstarted_leading=self._started,
            onstopped_leading=self._stopped,
        )
        await LeaderElection(config).run()

    async def release(self, client: Client) -> None:
        """Give the Lease to whoever wants it, if it is ours. Nothing may be written any more."""
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
