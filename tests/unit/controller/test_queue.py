"""The work queue: de-duplicating, exclusive by key, patient with failures."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from deepspeed_operator.controller.queue import Key, WorkQueue

A: Key = ("ml", "a")
B: Key = ("ml", "b")


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def drive(test: Callable[[WorkQueue], Awaitable[None]]) -> None:
    async def run() -> None:
        await test(WorkQueue())

    asyncio.run(run())


class Worker:
    """Notes what it works on; holds its keys until told to go on."""

    def __init__(self, *, free: bool = True, failures: int = 0) -> None:
        self.seen: list[Key] = []
        self.gate = asyncio.Event()
        self.at_once = 0
        self.most_at_once: dict[Key, int] = {}
        self._now: dict[Key, int] = {}
        self._failures = failures
        if free:
            self.gate.set()

    async def __call__(self, key: Key) -> None:
        self.seen.append(key)
        self._now[key] = self._now.get(key, 0) + 1
        self.most_at_once[key] = max(self.most_at_once.get(key, 0), self._now[key])
        self.at_once = max(self.at_once, sum(self._now.values()))
        await self.gate.wait()
        self._now[key] -= 1
        if self._failures:
            self._failures -= 1
            raise RuntimeError("as the test wants it")


def test_a_key_added_many_times_is_worked_on_once() -> None:
    async def test(queue: WorkQueue) -> None:
        worker = Worker()
        for _ in range(5):
            queue.add(A)
        assert len(queue) == 1
        task = asyncio.create_task(queue.run(worker, 4))
        await settle()
        task.cancel()
        assert worker.seen == [A]

    drive(test)


def test_a_key_added_while_it_is_worked_on_comes_once_more_and_never_twice_at_a_time() -> None:
    async def test(queue: WorkQueue) -> None:
        worker = Worker(free=False)
        task = asyncio.create_task(queue.run(worker, 4))
        queue.add(A)
        await settle()
        for _ in range(3):
            queue.add(A)
        await settle()
        assert worker.seen == [A]
        worker.gate.set()
        await settle()
        task.cancel()
        assert worker.seen == [A, A]
        assert worker.most_at_once == {A: 1}

    drive(test)


def test_different_keys_are_worked_on_at_the_same_time_in_the_order_of_arrival() -> None:
    async def test(queue: WorkQueue) -> None:
        worker = Worker(free=False)
        keys = [("ml", str(number)) for number in range(6)]
        for key in keys:
            queue.add(key)
        task = asyncio.create_task(queue.run(worker, 4))
        await settle()
        assert worker.seen == keys[:3], "the last worker is kept for another namespace"
        worker.gate.set()
        await settle()
        task.cancel()
        assert worker.seen == keys
        assert worker.at_once == 3

    drive(test)


def test_the_earliest_of_several_alarms_counts() -> None:
    async def test(queue: WorkQueue) -> None:
        worker = Worker()
        task = asyncio.create_task(queue.run(worker, 1))
        queue.add_after(A, 60)
        queue.add_after(A, 0.05)
        queue.add_after(A, 30)
        await asyncio.sleep(0.02)
        assert worker.seen == []
        await asyncio.sleep(0.1)
        task.cancel()
        assert worker.seen == [A]

    drive(test)


def test_a_failure_delays_its_key_and_no_other() -> None:
    async def test(queue: WorkQueue) -> None:
        worker = Worker(failures=1)
        task = asyncio.create_task(queue.run(worker, 1))
        queue.add(A)
        queue.add(B)
        await settle()
        assert worker.seen == [A, B]
        await asyncio.sleep(0.7)
        task.cancel()
        assert worker.seen == [A, B, A]

    drive(test)


@pytest.mark.parametrize("alarm", [None, 0.01])
def test_neither_its_own_writes_nor_its_alarm_shorten_the_delay_of_a_failing_key(alarm: float | None) -> None:
    async def test(queue: WorkQueue) -> None:
        worker = Worker(failures=100)

        async def work(key: Key) -> None:
            if alarm is None:
                queue.add(key)  # the echo of a write
            else:
                queue.add_after(key, alarm)
            await worker(key)

        task = asyncio.create_task(queue.run(work, 1))
        queue.add(A)
        await asyncio.sleep(0.2)
        task.cancel()
        assert worker.seen == [A]

    drive(test)


def test_a_forgotten_key_has_no_alarm_left() -> None:
    async def test(queue: WorkQueue) -> None:
        worker = Worker()
        task = asyncio.create_task(queue.run(worker, 1))
        queue.add_after(A, 0.02)
        queue.forget(A)
        await asyncio.sleep(0.06)
        task.cancel()
        assert worker.seen == []

    drive(test)


def test_a_namespace_with_many_jobs_delays_no_other_ones_first() -> None:
    async def test(queue: WorkQueue) -> None:
        worker = Worker(free=False)
        task = asyncio.create_task(queue.run(worker, 8))
        for number in range(100):
            queue.add(("flood", str(number)))
        await settle()
        assert len(worker.seen) == 6
        queue.add(("another", "first"))
        await settle()
        assert worker.seen[6] == ("another", "first")
        task.cancel()

    drive(test)


def test_namespaces_take_turns() -> None:
    async def test(queue: WorkQueue) -> None:
        worker = Worker()
        for number in range(3):
            queue.add(("flood", str(number)))
        queue.add(("another", "0"))
        queue.add(("another", "1"))
        task = asyncio.create_task(queue.run(worker, 1))
        await settle()
        task.cancel()
        assert [namespace for namespace, _ in worker.seen] == ["flood", "another", "flood", "another", "flood"]

    drive(test)
