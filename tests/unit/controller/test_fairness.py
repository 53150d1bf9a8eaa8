"""Permits: shared by the namespaces that want one."""

import asyncio
import time

import pytest

from deepspeed_operator.controller import fairness
from deepspeed_operator.controller.fairness import Pace, Permits, Shares
from tests.unit.controller.test_judges import compute


def test_a_namespace_leaves_some_to_those_who_have_none() -> None:
    shares = Shares(64)
    for namespace, most in (("first", 48), ("second", 12), ("third", 3), ("fourth", 1)):
        taken = 0
        while shares.may_take(namespace):
            shares.take(namespace)
            taken += 1
        assert taken == most
    assert not shares.may_take("fifth")
    shares.give("first")
    assert shares.may_take("fifth")


def test_who_waits_is_admitted_in_turns() -> None:
    admitted: list[str] = []

    async def use(permits: Permits, namespace: str) -> None:
        async with permits.one(namespace):
            admitted.append(namespace)
            await asyncio.sleep(0)

    async def run() -> None:
        permits = Permits(1)
        await asyncio.gather(*(use(permits, "flood") for _ in range(5)), use(permits, "another"))

    asyncio.run(run())
    assert "another" in admitted[:3]
    assert len(admitted) == 6


def test_a_cancelled_one_keeps_no_place() -> None:
    async def hold(permits: Permits, until: asyncio.Event) -> None:
        async with permits.one("ml"):
            await until.wait()

    async def run() -> None:
        permits, until = Permits(1), asyncio.Event()
        holder = asyncio.create_task(hold(permits, until))
        waiters = [asyncio.create_task(hold(permits, until)) for _ in range(3)]
        await asyncio.sleep(0)
        for task in (waiters[0], holder):
            task.cancel()
        await asyncio.gather(holder, waiters[0], return_exceptions=True)
        waiters[1].cancel()
        until.set()
        await asyncio.wait_for(asyncio.gather(*waiters, return_exceptions=True), 60)
        async with asyncio.timeout(5), permits.one("ml"):
            pass

    asyncio.run(run())


def test_a_namespace_that_holds_the_loop_up_rests_and_no_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "_SLOW_SECONDS", 0.0)
    decided: list[str] = []

    async def decide(pace: Pace, namespace: str) -> None:
        await pace.rested(namespace)
        with pace.timed(namespace):
            compute(time.process_time() + 0.02)
            decided.append(namespace)

    async def run() -> None:
        pace = Pace()
        flood = asyncio.gather(*(decide(pace, "flood") for _ in range(3)))
        await asyncio.sleep(0)
        assert decided == ["flood"], "the others of it wait"
        await asyncio.wait_for(decide(pace, "another"), 60)
        await asyncio.wait_for(flood, 60)

    asyncio.run(run())
    assert sorted(decided) == ["another", "flood", "flood", "flood"]
