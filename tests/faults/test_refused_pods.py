"""Half a gang holds nothing: what the API server refuses on the way is given back, said, and tried again."""

import asyncio
import time

import pytest

from deepspeed_operator.controller.quotas import SHARED_SECONDS as QUOTAS_SHARED_SECONDS
from tests.faults.jobs import Jobs
from tests.faults.proxy import Answer, Forward, Interceptor, Proxy, Request, refusal
from tests.faults.replica import Replica, eventually


def pods_created(requests: list[str]) -> Interceptor:
    """Note what would create a pod."""

    async def note(request: Request, forward: Forward) -> Answer:
        if request.creates("pods"):
            requests.append(request.path)
        return await forward()

    return note


def with_quota(jobs: Jobs, pods: int) -> None:
    jobs.create("resourcequotas", {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": str(pods)}}})
    path = f"{jobs.path('resourcequotas')}/pods"
    eventually(lambda: jobs.api.request("GET", path)["status"].get("used"), 20)


def widen_quota(jobs: Jobs) -> None:
    jobs.api.request("PATCH", f"{jobs.path('resourcequotas')}/pods", {"spec": {"hard": {"pods": "10"}}})


def test_a_quota_for_half_the_gang_lets_no_pod_be_created(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    created: list[str] = []
    proxy.intercept = pods_created(created)
    with_quota(jobs, 2)
    replica.start()
    jobs.apply(nodes=4)
    replica.eventually(lambda: jobs.condition("Ready").get("reason") == "PodsRefused", 20)
    lacking = "there is no room for all 4 pods: quota pods, pods: requested 4, used 0, limited 2"
    assert lacking in jobs.condition("Ready")["message"]
    assert jobs.condition("Accepted")["status"] == jobs.condition("Reconciling")["status"] == "True"
    assert created == []
    widen_quota(jobs)
    replica.eventually(jobs.running, 120)
    assert jobs.pod_names() == [f"pretrain-1-{index}" for index in range(4)]


def test_a_resumed_gang_is_summed_too(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    replica.start()
    jobs.apply(nodes=4)
    replica.eventually(jobs.running, 30)
    jobs.change(suspend=True)
    replica.eventually(lambda: jobs.condition("Suspended").get("status") == "True", 30)
    with_quota(jobs, 2)
    time.sleep(QUOTAS_SHARED_SECONDS)
    created: list[str] = []
    proxy.intercept = pods_created(created)
    jobs.change(suspend=False)
    replica.eventually(lambda: jobs.condition("Ready").get("reason") == "PodsRefused", 20)
    assert "there is no room for all 4 pods" in jobs.condition("Ready")["message"]
    assert created == []
    widen_quota(jobs)
    replica.eventually(jobs.running, 120)


def test_a_run_takes_over_the_quota_that_the_run_before_has_used_up(replica: Replica, jobs: Jobs) -> None:
    with_quota(jobs, 2)
    replica.start()
    jobs.apply(nodes=2)
    replica.eventually(jobs.running, 30)
    jobs.change(runId="larger", nodes=3, image="registry.local/none:2")
    replica.eventually(lambda: jobs.condition("Accepted").get("reason") == "PodsRefused", 20)
    lacking = "there is no room for all 3 pods: quota pods, pods: requested 3, limited 2"
    assert lacking in jobs.condition("Accepted")["message"]
    assert jobs.pod_names() == ["pretrain-1-0", "pretrain-1-1"], "the run before goes on"
    jobs.change(runId="again", nodes=2, image="registry.local/none:2")
    replica.eventually(lambda: jobs.pod_names() == ["pretrain-2-0", "pretrain-2-1"] and jobs.running(), 60)


def test_a_quota_that_is_not_summed_gives_back_half_the_gang(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    async def forbid_quotas(request: Request, forward: Forward) -> Answer:
        return refusal(403, "Forbidden") if request.path.endswith("/resourcequotas") else await forward()

    proxy.intercept = forbid_quotas
    with_quota(jobs, 2)
    replica.start()
    jobs.apply(nodes=4)
    replica.eventually(lambda: jobs.condition("Ready").get("reason") == "PodsRefused", 20)
    assert "exceeded quota: pods" in jobs.condition("Ready")["message"]
    replica.eventually(lambda: jobs.pods() == [], 20)
    widen_quota(jobs)
    replica.eventually(jobs.running, 120)
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
    replica.eventually(jobs.running, 120)


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
        if deleted and any(request.creates(plural) for plural in ("pods", "services", "configmaps", "secrets")):
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
