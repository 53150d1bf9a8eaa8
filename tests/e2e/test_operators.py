"""The operator dies, stops and doubles: jobs go on, and nothing is made twice."""

import os
import signal
from collections.abc import Callable

import pytest

from tests.e2e import processes
from tests.e2e.installation import Operator, now
from tests.e2e.jobs import ranks, script
from tests.e2e.kube import TERMINAL_PHASES, Namespace, eventually
from tests.e2e.pod_watch import PodWatch

pytestmark = pytest.mark.disrupts


@pytest.fixture
def namespace(make_namespace: Callable[..., Namespace]) -> Namespace:
    made = make_namespace("operators")
    made.config_map("rank", script("rank.py"))
    return made


def test_a_killed_operator_takes_up_the_same_attempt(namespace: Namespace, operator: Operator, plain: str) -> None:
    namespace.apply(ranks("steady", plain, "sleep=20"))
    namespace.running("steady")
    before = {pod["metadata"]["uid"] for pod in namespace.pods("steady")}
    killed = now()
    operator.kill()
    job = namespace.finished("steady")
    assert (job.outcome, job.attempt) == ("Complete", 1)
    assert {pod["metadata"]["uid"] for pod in namespace.pods("steady")} == before
    assert operator.created(killed, namespace.name) == []


def test_an_operator_killed_while_it_creates_makes_nothing_twice(
    namespace: Namespace, operator: Operator, plain: str
) -> None:
    seen = PodWatch(namespace)
    since = now()
    namespace.apply(ranks("interrupted", plain, nodes=8))
    eventually(lambda: operator.writes(since, namespace.name), "the operator began", 20)
    operator.kill()
    job = namespace.finished("interrupted")
    assert (job.outcome, job.attempt) == ("Complete", 1)
    assert sorted(seen.created) == [f"interrupted-1-{index}" for index in range(8)]


def test_a_result_that_arrives_while_suspending_wins(namespace: Namespace, operator: Operator, plain: str) -> None:
    namespace.apply(ranks("result", plain, "sleep=30"))
    namespace.running("result")
    operator.scale(0)
    namespace.edit("result", suspend=True)
    eventually(
        lambda: all(pod["status"]["phase"] in TERMINAL_PHASES for pod in namespace.pods("result")), "ranks end", 30
    )
    operator.scale(1)
    job = namespace.finished("result")
    assert job.outcome == "Complete"
    assert not job.holds("Suspended")
    assert job.attempt == 1


def test_a_stopped_leader_that_continues_creates_nothing(
    make_namespace: Callable[..., Namespace], operator: Operator, plain: str
) -> None:
    """It stops between a refused trial and the next; another leader makes the pods, and then it wakes up."""
    namespace = make_namespace("stopped")
    namespace.config_map("rank", script("rank.py"))
    namespace.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"}, "spec": {"hard": {"pods": "1"}}}
    )
    namespace.wait_for_quota("pods")
    seen = PodWatch(namespace)
    operator.scale(2)
    first = operator.leader()
    namespace.apply(ranks("gang", plain, "sleep=5"))
    namespace.wait("gang", lambda job: job.reason("Reconciling") == "PodsRefused", 30)
    process = processes.kill(first, "operator", signal.SIGSTOP)
    try:
        refused = len(seen.created)
        namespace.cluster.kubectl("delete", "-n", namespace.name, "resourcequota", "pods")
        eventually(lambda: operator.leader()["metadata"]["name"] != first["metadata"]["name"], "another leader", 60)
        attempt = namespace.completed("gang").attempt
    finally:
        os.kill(process, signal.SIGCONT)
    operator.settled(2)
    assert seen.created[refused:] == [f"gang-{attempt}-0", f"gang-{attempt}-1"]
    assert not seen.overlaps
    operator.scale(1)
