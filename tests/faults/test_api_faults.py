"""The API server refuses, stalls, forgets and breaks off: the job comes up all the same."""

import asyncio
import time
from collections.abc import Callable

from tests.faults.jobs import Jobs
from tests.faults.proxy import Answer, Forward, NoAnswer, Proxy, Request, refusal
from tests.faults.replica import Replica


def test_retry_after_is_obeyed(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    attempts: list[float] = []

    async def busy_twice(request: Request, forward: Forward) -> Answer:
        if request.creates("services"):
            attempts.append(time.monotonic())
            if len(attempts) <= 2:
                return refusal(429, "TooManyRequests", **{"Retry-After": "2"})
        return await forward()

    proxy.intercept = busy_twice
    replica.start()
    jobs.apply()
    replica.eventually(jobs.running, 20)
    first, second, third = attempts
    assert second - first >= 2
    assert third - second >= 2


def test_a_server_that_fails_now_and_then(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    """Every third request fails: before or after it was done, with an answer or without."""

    async def unreliable(request: Request, forward: Forward) -> Answer:
        match request.number % 12:
            case 2:
                return refusal(500, "InternalError")
            case 5:
                return refusal(503, "ServiceUnavailable")
            case 8:
                raise NoAnswer
            case 11:
                await forward()
                raise NoAnswer
            case _:
                return await forward()

    proxy.intercept = unreliable
    replica.start(wait=False)
    jobs.apply(nodes=4)
    replica.eventually(jobs.running, 60)
    assert jobs.pod_names() == [f"pretrain-1-{index}" for index in range(4)]


def test_a_conflict_on_status_is_reconciled_anew(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    """Somebody else changes the job between our read and our write."""
    conflicts: list[str] = []

    async def meddle(request: Request, forward: Forward) -> Answer:
        if request.path.endswith("/status") and len(conflicts) < 3:
            conflicts.append(request.path)
            path = request.path.removesuffix("/status")
            jobs.api.request("PATCH", path, {"metadata": {"labels": {"meddled": str(len(conflicts))}}})
        return await forward()

    proxy.intercept = meddle
    replica.start()
    jobs.apply()
    replica.eventually(jobs.running, 20)
    assert len(conflicts) == 3


def test_a_quota_that_two_pods_race_for_is_tried_again(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    conflicts: list[str] = []

    async def race(request: Request, forward: Forward) -> Answer:
        if request.creates("pods") and len(conflicts) < 2:
            conflicts.append(request.path)
            words = 'Operation cannot be fulfilled on resourcequotas "gpu": the object has been modified'
            return refusal(409, "Conflict", words)
        return await forward()

    proxy.intercept = race
    replica.start()
    jobs.apply()
    replica.eventually(jobs.running, 20)
    assert jobs.status()["attempt"]["number"] == 1


def test_a_deletion_that_nobody_watched_is_seen(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    """The stream breaks, a pod and a job vanish, and the version to go on from has expired."""
    replica.start()
    jobs.apply("stays", failurePolicy={"maxInfrastructureRestarts": 0})
    jobs.apply("goes")
    replica.eventually(lambda: jobs.running("stays") and jobs.running("goes"), 20)
    away = True

    async def no_watch(request: Request, forward: Forward) -> Answer:
        if request.watches and away:
            return refusal(503, "ServiceUnavailable")
        if request.watches and request.path.endswith("/pods") and int(request.query["resourceVersion"]) < latest:
            return refusal(410, "Expired")
        return await forward()

    latest = 1 << 62
    proxy.intercept = no_watch
    proxy.cut_watches()
    jobs.delete_pod("stays-1-1")
    jobs.delete("goes")
    replica.eventually(lambda: not jobs.exists("goes"), 10)
    relists = replica.metric("deepspeed_operator_informer_relists_total")
    latest = int(jobs.api.request("GET", jobs.path("pods"))["metadata"]["resourceVersion"])
    away = False
    replica.eventually(lambda: jobs.condition("Failed", "stays").get("status") == "True", 45)
    assert jobs.status("stays")["failure"]["pod"] == "stays-1-1"
    assert replica.metric("deepspeed_operator_informer_relists_total") > relists
    replica.eventually(lambda: replica.jobs("Running") == 0, 45)


def test_an_answer_that_comes_after_its_pods_end_does_not_bring_it_back(
    replica: Replica, jobs: Jobs, proxy: Proxy
) -> None:
    """The pods are gone, and the watch has told so, before the answers to their deletion arrive."""

    async def slow(request: Request, forward: Forward) -> Answer:
        answer = await forward()
        if request.method == "DELETE" and "/pods/" in request.path:
            await asyncio.sleep(1)
        return answer

    replica.start()
    jobs.apply()
    replica.eventually(jobs.running, 30)
    proxy.intercept = slow
    jobs.change(runId="again")
    replica.eventually(lambda: jobs.pod_names() == ["pretrain-2-0", "pretrain-2-1"], 30)
    replica.eventually(jobs.running, 30)


def test_streams_that_are_cut_again_and_again(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    replica.start()
    for number in range(4):
        jobs.apply(f"job-{number}")
        proxy.cut_watches()
    replica.eventually(lambda: all(jobs.running(f"job-{number}") for number in range(4)), 60)


def test_an_old_or_incomplete_server_is_named(make_replica: Callable[..., Replica], proxy: Proxy) -> None:
    answers = {"/version": Answer(200, b'{"gitVersion": "v1.30.4"}', {"Content-Type": "application/json"})}

    async def another(request: Request, forward: Forward) -> Answer:
        return answers[request.path] if request.path in answers else await forward()

    proxy.intercept = another
    replica = make_replica(proxy, "old")
    replica.start(wait=False)
    replica.eventually(lambda: replica.get("/readyz")[0] == 503, 20)
    replica.eventually(lambda: "the API server is v1.30.4, Kubernetes 1.31 or newer" in replica.get("/readyz")[1], 20)
    assert replica.get("/healthz") == (200, "ok")
    answers.clear()
    answers["/apis/deepspeed-operator.dev/v1alpha1"] = refusal(404, "NotFound")
    replica.eventually(lambda: "apply the CRD" in replica.get("/readyz")[1], 20)
    answers.clear()
    replica.eventually(lambda: replica.get("/readyz") == (200, "leading"), 30)
    assert replica.stop() == 0
