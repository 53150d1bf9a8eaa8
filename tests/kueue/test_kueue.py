"""What Kueue 0.17 and the operator make of each other."""

import signal
from collections.abc import Callable, Iterator

import pytest

from dev.cluster.kueue import Kueue
from tests.faults.jobs import Jobs
from tests.faults.replica import Replica
from tests.kueue.page import see
from tests.kueue.queues import API_VERSION, KUEUE, Queue

SOON, LATER = 60, 120


@pytest.fixture
def queue(jobs: Jobs, kueue: Kueue) -> Iterator[Queue]:
    """A queue with quota for the two pods of one job."""
    assert kueue.log.exists()
    queue = Queue(jobs, pods=2)
    queue.make()
    yield queue
    queue.remove()


def test_kueue_comes_later(jobs: Jobs, replica: Replica, request: pytest.FixtureRequest) -> None:
    queue = Queue(jobs, pods=2)
    queue.submit("first")
    replica.eventually(lambda: jobs.condition("Ready", "first").get("reason") == "QueueUnavailable", SOON)
    assert "install Kueue" in jobs.condition("Ready", "first")["message"]
    assert jobs.pods() == []
    request.getfixturevalue("kueue")
    queue.make()
    replica.eventually(lambda: jobs.running("first"), LATER)
    assert replica.alive
    assert "Jobs that ask for a queue wait" in replica.log
    queue.remove()


def test_wait_preempt_requeue_and_complete(queue: Queue, jobs: Jobs, eventually: Callable[..., None]) -> None:
    queue.submit("first")
    eventually(lambda: jobs.running("first"), SOON)
    eventually(lambda: queue.told("first", "PodsReady") == ("True", "Started"), SOON)
    queue.submit("second")
    eventually(lambda: "insufficient unused quota" in jobs.condition("Running", "second").get("message", ""), SOON)
    assert (queue.state("second"), jobs.pods_of("second")) == ("Queued", [])
    see(queue, "first", "it runs")
    see(queue, "second", "another job has the quota")
    urgent = f"urgent-{queue.name}"
    queue.submit("third", priorityClassName=urgent)
    eventually(lambda: jobs.running("third"), SOON)
    eventually(lambda: queue.state("first") == "Queued", SOON)
    status = jobs.status("first")
    (ended,) = status["attempts"]
    assert (ended["outcome"], ended["reason"], ended["category"]) == ("Evicted", "QuotaReclaimed", "Disruption")
    assert "Preempted" in ended["message"]
    assert status["run"]["restarts"] == {"user": 0, "infrastructure": 0, "uncounted": 1}
    assert jobs.pods_of("first") == []
    see(queue, "first", "the last pod has ended")
    jobs.delete("second")
    eventually(lambda: queue.workload("second") is None and not jobs.exists("second"), SOON)
    queue.complete("third")
    eventually(lambda: queue.told("third", "Finished") == ("True", "Succeeded"), SOON)
    eventually(lambda: jobs.runs_attempt(2, "first"), SOON)
    eventually(lambda: queue.told("first", "PodsReady") == ("True", "Started"), SOON)
    see(queue, "first", "its turn again")
    queue.complete("first")
    eventually(lambda: queue.told("first", "Finished") == ("True", "Succeeded"), SOON)
    assert (queue.state("first"), queue.state("third")) == ("Complete", "Complete")
    see(queue, "first", "complete")


def test_pods_go_where_the_flavor_says(queue: Queue, jobs: Jobs, replica: Replica) -> None:
    queue.submit("first")
    replica.eventually(lambda: jobs.running("first"), SOON)
    for pod in jobs.pods():
        assert pod["spec"]["nodeSelector"]["type"] == "kwok"
        assert "kwok.x-k8s.io/node" in [each.get("key") for each in pod["spec"]["tolerations"]]
    placement = jobs.status("first")["attempt"]["placement"]
    assert (placement["flavors"], placement["nodeSelector"]) == ([queue.name], {"type": "kwok"})


def test_quota_is_given_back_when_the_last_pod_has_ended(queue: Queue, jobs: Jobs, replica: Replica) -> None:
    queue.submit("first")
    replica.eventually(lambda: jobs.running("first"), SOON)
    jobs.hold("first-1-1")
    queue.submit("second", priorityClassName=f"urgent-{queue.name}")
    replica.eventually(lambda: queue.phase("first") == "Evicting" and len(jobs.pods_of("first")) == 1, SOON)
    assert queue.told("first", "Evicted") == ("True", "Preempted")
    replica.send(signal.SIGKILL)
    replica.wait()
    replica.start()
    replica.eventually(lambda: queue.state("second") == "Queued", SOON)
    assert (queue.phase("first"), queue.told("first", "QuotaReserved")[0]) == ("Evicting", "True")
    assert jobs.pods_of("second") == []
    see(queue, "first", "one of higher priority takes the quota, and a pod still ends")
    see(queue, "second", "the one of higher priority meanwhile")
    jobs.let_go("first-1-1")
    replica.eventually(lambda: jobs.running("second"), SOON)
    replica.eventually(lambda: queue.state("first") == "Queued", SOON)
    queue.complete("second")
    replica.eventually(lambda: jobs.runs_attempt(2, "first"), SOON)


def test_a_job_that_has_ended_makes_room_at_once(queue: Queue, jobs: Jobs, replica: Replica) -> None:
    queue.submit("first")
    replica.eventually(lambda: jobs.running("first"), SOON)
    queue.submit("second")
    replica.eventually(lambda: queue.told("second", "QuotaReserved")[0] == "False", SOON)
    queue.complete("first")
    replica.eventually(lambda: jobs.running("second"), SOON)
    assert queue.told("first", "Finished") == ("True", "Succeeded")
    see(queue, "second", "that has ended: its turn")


def test_a_job_that_waits_is_suspended_and_resumed(queue: Queue, jobs: Jobs, replica: Replica) -> None:
    queue.submit("first")
    replica.eventually(lambda: jobs.running("first"), SOON)
    queue.submit("second")
    replica.eventually(lambda: queue.told("second", "QuotaReserved")[0] == "False", SOON)
    jobs.change("second", suspend=True)
    replica.eventually(lambda: queue.state("second") == "Suspended" and queue.workload("second") is None, SOON)
    see(queue, "second", "suspended while it waited")
    jobs.change("second", suspend=False)
    replica.eventually(lambda: queue.told("second", "QuotaReserved")[0] == "False", SOON)
    queue.complete("first")
    replica.eventually(lambda: jobs.running("second"), SOON)


def test_a_workload_that_somebody_deletes_is_made_again(queue: Queue, jobs: Jobs, replica: Replica) -> None:
    queue.submit("first")
    replica.eventually(lambda: jobs.running("first"), SOON)
    queue.submit("second")
    replica.eventually(lambda: queue.told("second", "QuotaReserved")[0] == "False", SOON)
    queue.delete_workload("second")  # it waits again, and nothing else
    replica.eventually(lambda: queue.told("second", "QuotaReserved")[0] == "False", SOON)
    assert jobs.status("second").get("attempts", []) == []
    jobs.delete("second")
    before = queue.workload("first")
    queue.delete_workload("first")
    replica.eventually(lambda: jobs.runs_attempt(2, "first"), SOON)
    assert "was deleted" in jobs.status("first")["attempts"][0]["message"]
    after = queue.workload("first")
    assert before is not None
    assert after is not None
    assert before["metadata"]["uid"] != after["metadata"]["uid"]
    see(queue, "first", "its Workload was deleted while it ran; its turn again")


def test_kueue_goes_down_and_comes_up(queue: Queue, kueue: Kueue, jobs: Jobs, replica: Replica) -> None:
    queue.submit("first")
    replica.eventually(lambda: jobs.running("first"), SOON)
    replica.eventually(lambda: queue.told("first", "PodsReady") == ("True", "Started"), SOON)
    with kueue.down():
        jobs.delete_pod("first-1-1")  # what runs goes on, and a lost pod is replaced
        replica.eventually(lambda: "first-1-1-r1" in jobs.pods_of("first") and jobs.running("first"), SOON)
        queue.submit("second")
        replica.eventually(lambda: jobs.condition("Ready", "second").get("reason") == "QueueUnavailable", SOON)
        assert "webhook" in jobs.condition("Ready", "second")["message"]
        see(queue, "second", "Kueue is down, and it asks for its turn")
        queue.complete("first")
        replica.eventually(lambda: queue.state("first") == "Complete", SOON)
        see(queue, "first", "Kueue is down, and it has ended")
    replica.eventually(lambda: queue.told("first", "Finished") == ("True", "Succeeded"), LATER)
    replica.eventually(lambda: jobs.running("second"), LATER)
    see(queue, "second", "Kueue is up again")
    assert replica.alive


def test_a_lost_pod_keeps_the_quota(queue: Queue, jobs: Jobs, replica: Replica) -> None:
    queue.submit("first")
    replica.eventually(lambda: jobs.running("first"), SOON)
    before = queue.workload("first")
    jobs.delete_pod("first-1-1")
    replica.eventually(lambda: "first-1-1-r1" in jobs.pods_of("first") and jobs.running("first"), SOON)
    after = queue.workload("first")
    assert before is not None
    assert after is not None
    assert before["metadata"]["uid"] == after["metadata"]["uid"]
    assert after["status"]["admission"] == before["status"]["admission"]
    assert queue.told("first", "Evicted") == ("", "")
    replica.eventually(lambda: queue.told("first", "PodsReady") == ("True", "Started"), SOON)
    see(queue, "first", "a lost pod was replaced")


def test_an_operator_that_was_away_gives_the_quota_back(queue: Queue, jobs: Jobs, replica: Replica) -> None:
    queue.submit("first")
    replica.eventually(lambda: jobs.running("first"), SOON)
    assert replica.stop() == 0
    queue.submit("second", priorityClassName=f"urgent-{queue.name}")
    replica.start()
    replica.eventually(lambda: jobs.running("second"), SOON)
    replica.eventually(lambda: queue.state("first") == "Queued", SOON)


def test_pods_that_are_never_ready_lose_their_turn(queue: Queue, jobs: Jobs, replica: Replica) -> None:
    flavor = f"{KUEUE}/resourceflavors/{queue.name}"
    queue.api.request("PATCH", flavor, {"spec": {"nodeLabels": {"type": "none"}}})
    queue.submit("first")
    replica.eventually(lambda: len(jobs.pods_of("first")) == 2, SOON)
    replica.eventually(lambda: jobs.status("first").get("attempts"), LATER)
    assert "PodsReadyTimeout" in jobs.status("first")["attempts"][0]["message"]
    queue.api.request("PATCH", flavor, {"spec": {"nodeLabels": {"type": "kwok"}}})
    replica.eventually(lambda: jobs.running("first"), LATER)
    see(queue, "first", "its pods were not ready in time; its turn again")


@pytest.mark.parametrize("cause", ["ClusterQueueStopped", "Deactivated"])
def test_a_stopped_job_goes_on_when_it_may(queue: Queue, jobs: Jobs, replica: Replica, cause: str) -> None:
    queue.submit("first")
    replica.eventually(lambda: jobs.running("first"), SOON)
    if cause == "Deactivated":
        queue.activate("first", active=False)
    else:
        queue.change(stopPolicy="HoldAndDrain")
    replica.eventually(lambda: queue.state("first") == "Queued" and not jobs.pods_of("first"), SOON)
    replica.eventually(lambda: queue.told("first", "QuotaReserved")[0] == "False", SOON)
    assert cause in jobs.status("first")["attempts"][0]["message"]
    see(queue, "first", "its Workload is deactivated" if cause == "Deactivated" else "the queue is stopped")
    if cause == "Deactivated":
        queue.activate("first", active=True)
    else:
        queue.change(stopPolicy="None")
    replica.eventually(lambda: jobs.runs_attempt(2, "first"), SOON)


def test_suspend_and_resume(queue: Queue, jobs: Jobs, replica: Replica) -> None:
    queue.submit("first")
    replica.eventually(lambda: jobs.running("first"), SOON)
    queue.submit("second")
    jobs.change("first", suspend=True)
    replica.eventually(lambda: jobs.running("second"), SOON)
    assert (queue.state("first"), queue.workload("first")) == ("Suspended", None)
    see(queue, "first", "suspended while it ran")
    jobs.change("first", suspend=False)
    replica.eventually(lambda: queue.told("first", "QuotaReserved")[0] == "False", SOON)
    see(queue, "first", "resumed, and another one has the quota")
    jobs.delete("second")
    replica.eventually(lambda: jobs.runs_attempt(2, "first"), SOON)


def test_a_workload_that_is_there_already_is_adopted(queue: Queue, jobs: Jobs, replica: Replica) -> None:
    limits = {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "i", "resources": limits}]}
    sets = [{"name": "main", "count": 2, "template": {"spec": pod}}]
    path = f"{KUEUE}/namespaces/{jobs.namespace}/workloads"
    spec = {"queueName": "team", "podSets": sets}
    body = {"apiVersion": API_VERSION, "kind": "Workload", "metadata": {"name": "made-before"}, "spec": spec}
    queue.api.request("POST", path, body)
    queue.submit("first", labels={"kueue.x-k8s.io/prebuilt-workload-name": "made-before"})
    replica.eventually(lambda: jobs.running("first"), SOON)
    see(queue, "first", "a Workload of somebody else's, which its label names")
    queue.complete("first")
    replica.eventually(lambda: queue.told("first", "Finished") == ("True", "Succeeded"), SOON)


def test_a_job_that_waits_costs_one_object(queue: Queue, jobs: Jobs, replica: Replica) -> None:
    queue.submit("large", nodes=512)
    replica.eventually(lambda: queue.state("large") == "Queued" and queue.told("large", "QuotaReserved")[0], SOON)
    assert len(queue.workloads()) == 1
    picture = jobs.picture("large")
    kinds = ("pods", "configmaps", "secrets", "services", "endpointslices")
    assert {kind: picture[kind] for kind in kinds} == {kind: [] for kind in kinds}
    see(queue, "large", "512 nodes, and too little quota")
