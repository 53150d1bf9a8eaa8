"""A Lease that vanishes while it is held is not made again at once: an uninstallation takes it before the pods."""

import asyncio
from typing import Any, cast

import pytest
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord

from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.lease import Lease

RECORD = LeaderElectionRecord("me", "15", None, None)


class Server:
    """Answers for one Lease, which may be gone."""

    def __init__(self) -> None:
        self.there = True
        self.created = 0

    async def get(self, *_: Any) -> dict[str, Any]:
        if not self.there:
            raise ApiError(404, "NotFound", "no Lease")
        return {"metadata": {"name": "lease"}}

    async def create(self, *_: Any) -> dict[str, Any]:
        self.created += 1
        self.there = True
        return await self.get()


@pytest.mark.parametrize(("seconds", "made"), [(0.0, False), (4.9, False), (5.0, True)])
def test_a_lease_that_vanished_is_made_again_later(seconds: float, made: bool) -> None:
    async def see() -> tuple[bool, int]:
        now, server = [100.0], Server()
        lease = Lease(
            cast("Client", server), name="lease", namespace="ops", identity="me", deadline=5.0,
            renewed=lambda _: True, clock=lambda: now[0],
        )  # fmt: skip
        await lease.get("lease", "ops")
        server.there = False
        await lease.get("lease", "ops")
        now[0] += seconds
        return await lease.create("lease", "ops", RECORD), server.created

    assert asyncio.run(see()) == (made, int(made))


def test_the_first_lease_is_made_at_once() -> None:
    async def see() -> bool:
        server = Server()
        server.there = False
        lease = Lease(
            cast("Client", server), name="lease", namespace="ops", identity="me", deadline=5.0,
            renewed=lambda _: True, clock=lambda: 0.0,
        )  # fmt: skip
        await lease.get("lease", "ops")
        return await lease.create("lease", "ops", RECORD)

    assert asyncio.run(see())
