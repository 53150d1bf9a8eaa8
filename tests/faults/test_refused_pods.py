"""Half a gang holds nothing: what the API server refuses on the way is given back, said, and tried again."""

import asyncio
import time

import pytest

from tests.faults.jobs import Jobs
from tests.faults.proxy import Answer, Forward, Proxy, Request
from tests.faults.replica import Replica


def test_a_quota_for_half_the_gang(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    jobs.create("resourcequotas", {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "2"}}})
    replica.start()
    jobs.apply(nodes=4)
    replica.eventually(lambda: jobs.condition("Ready").get("reason") == "PodsRefused", 20)
    assert "exceeded quota: pods" in jobs.condition("Ready")["message"]
    replica.eventually(lambda: jobs.pods() == [], 20)
    path = f"{jobs.path('resourcequotas')}/pods"
    jobs.api.request("PATCH", path, {"spec": {"hard": {"pods": "10"}}})
    replica.eventually(jobs.running, 60)
    assert jobs.pod_names() == [f"pretrain-1-{index}" for index in range(4)]


def test_a_name_that_is_taken(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    pod = {"metadata": {"name": "pretrain-1-1"}, "spec": {"containers": [{"name": "theirs", "image": "none"}]}}
    jobs.create("pods", pod)
    replica.start()
    jobs.apply()
    replica.eventually(lambda: jobs.condition("Accepted").get("reason") == "NameConflict", 20)
    assert "pod pretrain-1-1 exists and is not owned by a DeepSpeedJob" in jobs.condition("Accepted")["message"]
    replica.eventually(lambda: jobs.pod_names() == ["pretrain-1-1"], 20)
    jobs.delete_pod("pretrain-1-1")
    replica.eventually(jobs.running, 60)


def test_no_pod_is_created_after_the_jobs_deletion(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    """The job is deleted, its pods first, while the first of eight is being created."""
    created: list[str] = []

    async def delete_meanwhile(request: Request, forward: Forward) -> Answer:
        if request.creates("pods"):
            created.append(request.path)
            answer = await forward()
            jobs.delete(policy="Foreground")
            await asyncio.sleep(0.5)  # the watch tells of it before the create is answered
            return answer
        return await forward()

    proxy.intercept = delete_meanwhile
    replica.start()
    jobs.apply(nodes=8)
    replica.eventually(lambda: created and not jobs.exists(), 30)
    assert len(created) == 1
    replica.eventually(lambda: jobs.pods() == [], 20)


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_nothing_is_created_after_a_deletion_that_the_watch_told_before_our_write_was_answered(
    replica: Replica, jobs: Jobs, proxy: Proxy, policy: str
) -> None:
    deleted = False
    created: list[str] = []

    async def slow(request: Request, forward: Forward) -> Answer:
        nonlocal deleted
        if deleted and any(request.creates(plural) for plural in ("pods", "services", "configmaps")):
            created.append(request.path)
        answer = await forward()
        if request.method == "PUT" and request.path.endswith("/pretrain/status") and not deleted:
            deleted = True
            jobs.delete(policy=policy)
            await asyncio.sleep(1)
        return answer

    proxy.intercept = slow
    replica.start()
    jobs.apply()
    replica.eventually(lambda: deleted and not jobs.exists(), 30)
    time.sleep(2)  # for what would be too much
    assert created == []
