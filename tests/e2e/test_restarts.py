"""A run that goes on after a failure: in its pods, or in new ones."""

from collections.abc import Callable

import pytest

from tests.e2e.installation import Operator, now
from tests.e2e.jobs import ranks, script
from tests.e2e.kube import CORE, Json, Namespace
from tests.e2e.pod_watch import PodWatch

SOON = {"backoffSeconds": 1}
# Long enough for what a test does meanwhile on a busy machine, and over once that has ended the ranks.
A_WHILE = "sleep-at-first=300"


@pytest.fixture
def namespace(make_namespace: Callable[..., Namespace]) -> Namespace:
    made = make_namespace("restarts")
    made.config_map("rank", script("rank.py"))
    return made


def warnings(namespace: Namespace, name: str) -> list[Json]:
    """All of a job that has ended: events are written one after the other."""
    namespace.told(name, "Completed")
    return [event for event in namespace.events(name) if event["type"] == "Warning"]


def test_a_killed_rank_starts_again_in_its_pod(namespace: Namespace, plain: str) -> None:
    seen = PodWatch(namespace)
    namespace.apply(ranks("killed", plain, "sleep=3", "1:kill-once=9", "sleep=3"))
    job = namespace.completed("killed")
    report = namespace.report("killed")
    assert (job.attempt, job.status["restarts"], job.status["attempt"]["round"]) == (1, 1, 2), report
    assert job.status["attempt"]["restarts"] == {"user": 0, "infrastructure": 1, "uncounted": 0}, report
    assert sorted(seen.created) == ["killed-1-0", "killed-1-1"]
    (event,) = warnings(namespace, "killed")
    assert "started again in their pods, round 2 of attempt 1" in event["message"]


@pytest.mark.parametrize("index", [1, 0])
def test_another_pod_takes_the_place_of_a_deleted_one_and_the_others_stay(
    namespace: Namespace, operator: Operator, plain: str, index: int
) -> None:
    """Also where it is rank 0's, which all others have to find by its name."""
    seen, lost = PodWatch(namespace), f"replaced-1-{index}"
    namespace.apply(ranks("replaced", plain, A_WHILE, nodes=3))
    namespace.running("replaced")
    since = now()
    namespace.cluster.kubectl("delete", "-n", namespace.name, "pod", lost, "--wait=false")
    job = namespace.completed("replaced")
    report = namespace.report("replaced")
    assert (job.attempt, job.status["restarts"]) == (1, 1), report
    assert job.status["attempt"]["restarts"] == {"user": 0, "infrastructure": 1, "uncounted": 0}, report
    (record,) = job.status["attempt"]["replacements"]
    assert (record["pod"], record["reason"], record["fenced"]) == (lost, "PodDeleted", True), report
    assert sorted(seen.created) == sorted([*(f"replaced-1-{each}" for each in range(3)), f"{lost}-r1"])
    assert not seen.overlaps
    assert operator.created(since, namespace.name) == [f"pods {lost}-r1"]
    told = [event["message"] for event in warnings(namespace, "replaced")]
    assert any(f"Pod {lost}-r1 takes its place" in words for words in told), told


def test_a_deleted_pod_costs_an_attempt_and_not_the_run(namespace: Namespace, plain: str) -> None:
    seen = PodWatch(namespace)
    namespace.apply(ranks("robbed", plain, A_WHILE, failurePolicy={**SOON, "replacementDeadlineSeconds": 0}))
    namespace.running("robbed")
    namespace.cluster.kubectl("delete", "-n", namespace.name, "pod", "robbed-1-1", "--wait=false")
    job = namespace.completed("robbed")
    report = namespace.report("robbed")
    assert (job.attempt, job.status["restarts"]) == (2, 1), report
    first, second = job.status["attempts"]
    assert (first["outcome"], first["reason"], first["pod"]) == ("Failed", "PodDeleted", "robbed-1-1"), report
    assert second["outcome"] == "Succeeded"
    assert "failure" not in job.status
    assert sorted(seen.created) == ["robbed-1-0", "robbed-1-1", "robbed-2-0", "robbed-2-1"]
    assert not seen.overlaps
    told = [event["message"] for event in warnings(namespace, "robbed")]
    assert any("Attempt 2 begins in" in words and "infrastructure restart 1 of 20" in words for words in told), told


def test_a_pod_that_is_evicted_through_the_api_is_replaced(namespace: Namespace, plain: str) -> None:
    namespace.apply(ranks("drained", plain, A_WHILE, failurePolicy=SOON))
    namespace.running("drained")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "drained-1-1"}}
    namespace.cluster.api.request("POST", f"{CORE}/namespaces/{namespace.name}/pods/drained-1-1/eviction", eviction)
    job = namespace.completed("drained")
    assert (job.attempt, job.status["restarts"]) == (1, 1), namespace.report("drained")
    assert [each["reason"] for each in job.status["attempt"]["replacements"]] == ["Drained"]


def test_the_program_is_tried_as_often_as_the_job_says_and_then_never_again(
    namespace: Namespace, operator: Operator, plain: str
) -> None:
    policy = {**SOON, "maxRestarts": 2, "restartInPlace": False}
    namespace.apply(ranks("tried", plain, "1:raise-anew=no data", "sleep=90", failurePolicy=policy))
    job = namespace.finished("tried")
    report = namespace.report("tried")
    assert (job.outcome, job.attempt, job.status["restarts"]) == ("Failed", 3, 2), report
    assert "no restart is left of 2 (spec.failurePolicy.maxRestarts)" in job.message("Failed"), report
    assert [each["outcome"] for each in job.status["attempts"]] == ["Failed"] * 3
    logs = {pod["metadata"]["name"] for pod in namespace.pods("tried")}
    assert logs == {f"tried-{attempt}-{index}" for attempt in (2, 3) for index in (0, 1)}
    since = now()
    namespace.cluster.kubectl("delete", "-n", namespace.name, "pod", "--all", "--wait=true")
    assert namespace.job("tried").outcome == "Failed"
    assert operator.created(since, namespace.name) == []


def test_what_fails_twice_in_the_same_way_before_its_first_step_is_not_tried_again(
    namespace: Namespace, plain: str
) -> None:
    policy = {**SOON, "maxRestarts": 9}
    namespace.apply(ranks("same", plain, "1:raise=no such argument", "sleep=90", failurePolicy=policy))
    job = namespace.finished("same")
    assert (job.outcome, job.status["restarts"]) == ("Failed", 1), namespace.report("same")
    assert "in a row" in job.message("Failed"), namespace.report("same")


def test_suspending_between_two_attempts_holds_nothing(namespace: Namespace, plain: str) -> None:
    namespace.apply(ranks("paused", plain, A_WHILE, failurePolicy={"backoffSeconds": 300, "restartInPlace": False}))
    namespace.running("paused")
    namespace.cluster.kubectl("delete", "-n", namespace.name, "pod", "paused-1-0", "--wait=false")
    namespace.wait("paused", lambda job: job.status["state"] == "Restarting", 60)
    namespace.edit("paused", suspend=True)
    namespace.wait("paused", lambda job: job.holds("Suspended"), 60)
    namespace.gone("paused")
    namespace.edit("paused", suspend=False)
    job = namespace.completed("paused")
    assert (job.attempt, job.status["restarts"]) == (2, 1), namespace.report("paused")
