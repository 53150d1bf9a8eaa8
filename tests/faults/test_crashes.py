"""The operator dies at any moment, and goes on where it was."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from tests.faults.jobs import ONCE, Jobs, Json
from tests.faults.proxy import Answer, Forward, Interceptor, NoAnswer, Proxy, Request, honest
from tests.faults.replica import Replica

# Two status writes, Service, ConfigMap, Secret, four pods, one or two writes of the EndpointSlice.
WRITES = 10
# The status that says why, the deletion of the other pod, the next attempt's status, ConfigMap, Secret, two pods, ….
WRITES_OF_A_NEW_ATTEMPT = 8
# The status that says why, the pod, the EndpointSlice, the status that says that all run.
WRITES_OF_A_REPLACEMENT = 4


def undisturbed(name: str, nodes: int, attempt: int = 1) -> Json:
    """Return what a job is that nothing went wrong with since this attempt began."""
    pods = [f"{name}-{attempt}-{index}" for index in range(nodes)]
    return {
        "state": "Running",
        "attempt": attempt,
        "pods": pods,
        "configmaps": [f"{name}-{attempt}"],
        "secrets": [f"{name}-{attempt}"],
        "services": [name],
        "endpointslices": [name],
        "addresses": pods,
    }


def killer(replica: Replica, number: int, done: bool) -> Interceptor:
    """Kill the operator at the write with this number, once it is `done` or before, and answer none that follows."""
    writes: list[str] = []

    async def kill(request: Request, forward: Forward) -> Answer:
        if request.writes:
            writes.append(request.path)
            if len(writes) == number:
                if done:
                    await forward()
                os.kill(replica.pid, signal.SIGKILL)
            if len(writes) >= number:
                raise NoAnswer
        return await forward()

    return kill


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_killed_at_each_write(replica: Replica, jobs: Jobs, proxy: Proxy, done: bool) -> None:
    """Killed before the API server has heard of the write, or after it was done; a job for each write."""
    replica.start()
    for number in range(1, WRITES + 1):
        proxy.intercept = killer(replica, number, done)
        name = f"job-{number}"
        jobs.apply(name, nodes=4)
        assert replica.wait(20) == -signal.SIGKILL
        proxy.intercept = honest
        replica.start()
        replica.eventually(lambda name=name: jobs.running(name), 20)
        replica.eventually(lambda name=name: jobs.picture(name) == undisturbed(name, 4), 5)


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_killed_at_each_write_of_a_new_attempt(replica: Replica, jobs: Jobs, proxy: Proxy, done: bool) -> None:
    """A pod of a running job is lost; the operator is killed at each write from then on, a job for each write."""

    def again(name: str) -> bool:
        return jobs.runs_attempt(2, name)

    replica.start()
    for number in range(1, WRITES_OF_A_NEW_ATTEMPT + 1):
        name = f"again-{number}"
        jobs.apply(name, failurePolicy={"backoffSeconds": 1, "restartInPlace": False})
        replica.eventually(lambda name=name: jobs.running(name), 20)
        proxy.intercept = killer(replica, number, done)
        jobs.delete_pod(f"{name}-1-1")
        assert replica.wait(30) == -signal.SIGKILL
        proxy.intercept = honest
        replica.start()
        replica.eventually(lambda name=name: again(name), 40)
        expected = undisturbed(name, 2, attempt=2)
        replica.eventually(lambda name=name, expected=expected: jobs.picture(name) == expected, 10)
        status = jobs.status(name)
        assert (status["restarts"], [each["outcome"] for each in status["attempts"]]) == (1, ["Failed"])


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_killed_at_each_write_of_a_replacement(replica: Replica, jobs: Jobs, proxy: Proxy, done: bool) -> None:
    """A pod of a running job is lost; the operator is killed at each write from then on, a job for each write."""

    def replaced(name: str) -> bool:
        status = jobs.status(name)
        return status["state"] == "Running" and bool(status["attempt"].get("replacements"))

    replica.start()
    for number in range(1, WRITES_OF_A_REPLACEMENT + 1):
        name = f"replaced-{number}"
        jobs.apply(name, nodes=3)
        replica.eventually(lambda name=name: jobs.running(name), 20)
        proxy.intercept = killer(replica, number, done)
        jobs.delete_pod(f"{name}-1-1")
        assert replica.wait(30) == -signal.SIGKILL
        proxy.intercept = honest
        replica.start()
        replica.eventually(lambda name=name: replaced(name), 40)
        expected = undisturbed(name, 3)
        expected["pods"] = [f"{name}-1-0", f"{name}-1-1-r1", f"{name}-1-2"]
        replica.eventually(lambda name=name, expected=expected: jobs.picture(name) == expected, 10)
        (record,) = jobs.status(name)["attempt"]["replacements"]
        assert (record["number"], record["index"], record["reason"]) == (1, 1, "PodDeleted")


def test_a_replacement_takes_four_writes(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    replica.start()
    jobs.apply(nodes=4)
    replica.eventually(jobs.running, 20)
    before = len(proxy.writes())
    jobs.delete_pod("pretrain-1-2")
    replica.eventually(lambda: "pretrain-1-2-r1" in jobs.pod_names() and jobs.running(), 20)
    replica.eventually(lambda: jobs.picture()["state"] == "Running", 5)
    writes = [write for write in proxy.writes()[before:] if write not in ONCE]
    assert len(writes) <= 4, writes


def test_a_restart_writes_nothing(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    replica.start()
    jobs.apply()
    jobs.apply("other", nodes=8)
    replica.eventually(lambda: jobs.running() and jobs.running("other"), 20)
    time.sleep(2)
    before = proxy.writes()
    assert replica.stop() == 0
    replica.start()
    time.sleep(3)
    assert proxy.writes() == before


def test_writes_from_apply_to_running(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    replica.start()
    jobs.apply(nodes=8)
    replica.eventually(jobs.running, 20)
    time.sleep(1)
    writes = [write for write in proxy.writes() if write not in ONCE]
    assert len(writes) <= 8 + 7, writes
    assert len(set(writes)) >= 8 + 5


def test_the_lease_is_handed_over_at_once(
    make_replica: Callable[[Proxy, str], Replica], jobs: Jobs, proxy: Proxy
) -> None:
    first, second = make_replica(proxy, "first"), make_replica(proxy, "second")
    first.start()
    second.start(wait=False)
    second.eventually(lambda: second.get("/readyz") == (200, "standing by"), 20)
    told = time.monotonic()
    first.send(signal.SIGTERM)
    second.eventually(lambda: jobs.lease_holder() == "second", 10)
    assert time.monotonic() - told < 5
    assert first.wait() == 0
    jobs.apply()
    second.eventually(jobs.running, 20)


@pytest.mark.parametrize("at", ["status", "pod"])
def test_a_leader_stopped_before_a_create_makes_nothing_when_it_continues(
    make_replica: Callable[[Proxy, str], Replica], make_proxy: Callable[[], Proxy], jobs: Jobs, at: str
) -> None:
    """It is stopped when its status is written, or its first pod made; another leads before it wakes up."""
    slow, straight = make_proxy(), make_proxy()
    first, second = make_replica(slow, "first"), make_replica(straight, "second")

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
    assert first.wait(20) == 1
    assert slow.writes() == stopped_with
    assert jobs.pod_names() == [f"pretrain-1-{index}" for index in range(4)]


def test_a_create_that_arrives_late_is_undone_or_does_nothing(
    make_replica: Callable[[Proxy, str], Replica], make_proxy: Callable[[], Proxy], jobs: Jobs
) -> None:
    """The old leader's request is on its way while another leader finishes the attempt and begins the next one."""
    slow, straight = make_proxy(), make_proxy()
    first, second = make_replica(slow, "first"), make_replica(straight, "second")
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
