"""The operator dies at any moment, and goes on where it was."""

import asyncio
import os
import random
import secrets
import signal
import threading
import time
from collections.abc import Callable

import pytest

from tests.faults.jobs import ONCE, Jobs
from tests.faults.kill_points import LIVES, KillPoints
from tests.faults.proxy import Answer, Forward, NoAnswer, Proxy, Request, honest
from tests.faults.replica import LONG_LEASE, SHORT_LEASE, Replica

DRAWN = 3  # of each life's writes; `make faults-full` tries all: docs/kill-points.md


@pytest.mark.parametrize("life", LIVES)
def test_killed_at_writes_of_a_life(replica: Replica, jobs: Jobs, proxy: Proxy, life: str) -> None:
    """Killed before the API server has heard of the write, or after it was done; a job for each write."""
    points, seed = KillPoints(replica, jobs, proxy), secrets.randbits(32)
    print(f"seed {seed}")
    drawn = random.Random(seed)
    replica.start()
    whole = points.undisturbed(life)
    numbers = range(1, len(whole.writes) + 1)
    for number in drawn.sample(numbers, min(DRAWN, len(numbers))):
        points.kill_at(life, number, done=drawn.random() < 0.5, expected=whole.picture)


def test_a_replacement_takes_four_writes(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    replica.start()
    jobs.apply(nodes=4)
    replica.eventually(jobs.running, 20)
    before = len(proxy.settled_writes())
    jobs.delete_pod("pretrain-1-2")
    replica.eventually(lambda: "pretrain-1-2-r1" in jobs.pod_names() and jobs.running(), 20)
    replica.eventually(lambda: jobs.picture()["state"] == "Running", 5)
    writes = [write for write in proxy.settled_writes()[before:] if write not in ONCE]
    assert len(writes) <= 4, writes


def test_a_restart_writes_nothing(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    replica.start()
    jobs.apply()
    jobs.apply("other", nodes=8)
    replica.eventually(lambda: jobs.running() and jobs.running("other"), 20)
    before = proxy.settled_writes()
    assert replica.stop() == 0
    replica.start()
    time.sleep(3)
    assert proxy.writes() == before


def test_writes_from_apply_to_running(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    replica.start()
    jobs.apply(nodes=8)
    replica.eventually(jobs.running, 20)
    writes = [write for write in proxy.settled_writes() if write not in ONCE]
    assert len(writes) <= 8 + 7, writes
    assert len(set(writes)) >= 8 + 5


def test_the_lease_is_handed_over_at_once(make_replica: Callable[..., Replica], jobs: Jobs, proxy: Proxy) -> None:
    first, second = make_replica(proxy, "first", LONG_LEASE), make_replica(proxy, "second", LONG_LEASE)
    first.start()
    second.start(wait=False)
    second.eventually(lambda: second.get("/readyz") == (200, "standing by"), 20)
    first.send(signal.SIGTERM)
    second.eventually(lambda: jobs.lease_holder() == "second", 10)  # long before the Lease would end
    assert first.wait() == 0
    jobs.apply()
    second.eventually(jobs.running, 20)


@pytest.mark.parametrize("at", ["status", "pod"])
def test_a_leader_stopped_before_a_create_makes_nothing_when_it_continues(
    make_replica: Callable[..., Replica], make_proxy: Callable[[], Proxy], jobs: Jobs, at: str
) -> None:
    """It is stopped when its status is written, or its first pod made; another leads before it wakes up."""
    slow, straight = make_proxy(), make_proxy()
    first, second = make_replica(slow, "first", SHORT_LEASE), make_replica(straight, "second", SHORT_LEASE)

    async def stop(request: Request, forward: Forward) -> Answer:
        answer = await forward()
        if request.path.endswith("/status") if at == "status" else request.creates("pods"):
            slow.intercept = honest
            os.kill(first.pid, signal.SIGSTOP)
        return answer

    slow.intercept = stop
    first.start()
    second.start(wait=False)
    jobs.apply(nodes=4)
    second.eventually(jobs.running, 30)
    stopped_with = slow.writes()
    first.send(signal.SIGCONT)
    assert first.wait() == 1
    assert slow.writes() == stopped_with
    assert jobs.pod_names() == [f"pretrain-1-{index}" for index in range(4)]


def test_a_create_that_arrives_late_is_undone_or_does_nothing(
    make_replica: Callable[..., Replica], make_proxy: Callable[[], Proxy], jobs: Jobs
) -> None:
    """The old leader's request is on its way while another leader finishes the attempt and begins the next one."""
    slow, straight = make_proxy(), make_proxy()
    first, second = make_replica(slow, "first", SHORT_LEASE), make_replica(straight, "second", SHORT_LEASE)
    released = threading.Event()
    late: list[Answer] = []

    async def hold(request: Request, forward: Forward) -> Answer:
        if request.creates("pods"):
            os.kill(first.pid, signal.SIGKILL)
            await asyncio.to_thread(released.wait)
            late.append(await forward())
            raise NoAnswer
        return await forward()

    slow.intercept = hold
    first.start()
    second.start(wait=False)
    jobs.apply()
    second.eventually(jobs.running, 30)
    jobs.change(runId="again")
    second.eventually(lambda: jobs.runs_attempt(2), 30)
    second.eventually(lambda: jobs.pod_names() == ["pretrain-2-0", "pretrain-2-1"], 20)
    released.set()
    second.eventually(lambda: late, 10)
    assert late[0].status == 201
    second.eventually(lambda: jobs.pod_names() == ["pretrain-2-0", "pretrain-2-1"], 20)
    assert jobs.running()
