"""Elastic runs in a queue, which may admit fewer pods than a run asks for: it goes on with as many as it can use."""

from typing import Any, Final

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.status import ConditionType, State
from tests.unit.reconcile.simulation import Simulation, agent_says, job
from tests.unit.reconcile.suspension import suspend_and_resume
from tests.unit.reconcile.test_elastic import configuration, no_room, world
from tests.unit.reconcile.test_queue import FLAVORS, NAME, QUEUED, admit, condition, evict, has_quota

# Of 8 samples in micro batches of 2 so many ranks make an optimizer step: 1, 2 or 4.
CONFIG: Final = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2}
POLICY: Final = {"restartInPlace": False}
ELASTIC: Final[dict[str, Any]] = {"nodes": 4, "dsConfig": CONFIG, "elastic": {"minNodes": 2}, "failurePolicy": POLICY}


def asking(**spec: Any) -> Simulation:
    simulation = Simulation(job(**QUEUED, **{**ELASTIC, **spec}), of_queue=dict(FLAVORS))
    simulation.settle()
    return simulation


def granted(count: int, **spec: Any) -> Simulation:
    """A run of four nodes that its queue admits with so many, and that trains."""
    simulation = asking(**spec)
    admit(simulation, count=count)
    return simulation.train()


def quota(simulation: Simulation) -> int:
    """Return for how many pods the Workload has quota, as Kueue counts it."""
    workload = simulation.workloads[NAME]
    admission, asked = workload["status"].get("admission"), workload["spec"]["podSets"][0]["count"]
    if admission is None:
        return 0
    reclaimable = sum(each["count"] for each in workload["status"].get("reclaimablePods") or ())
    return min(admission["podSetAssignments"][0]["count"], asked - reclaimable)


def fail(simulation: Simulation) -> None:
    """An attempt ends by no fault of its own, and the next one waits for the pods that still end."""
    simulation.end(0, 1, agent_says(0, 0, None, "NodeLost"), reason="NodeLost")
    simulation.wait(60)
    simulation.settle()
    simulation.wait(60)
    simulation.settle()


def test_an_elastic_run_asks_for_all_nodes_and_says_how_few_it_can_use() -> None:
    (pod_set,) = asking().workloads[NAME]["spec"]["podSets"]
    assert (pod_set["count"], pod_set["minCount"]) == (4, 2)
    (of_one,) = asking(elastic={"minNodes": 1}).workloads[NAME]["spec"]["podSets"]
    assert of_one["minCount"] == 1


def test_a_run_that_is_not_elastic_is_admitted_whole_or_not_at_all() -> None:
    no_other_size = {
        "dsConfig": {"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1},
        "elastic": {"minNodes": 3},
    }
    for spec in ({"elastic": None}, no_other_size):
        (pod_set,) = asking(**spec).workloads[NAME]["spec"]["podSets"]
        assert "minCount" not in pod_set


def test_a_run_begins_with_as_many_nodes_as_are_granted() -> None:
    simulation = granted(2)
    assert world(simulation) == (2, 2, 2)
    assert sorted(simulation.pods) == ["pretrain-1-0", "pretrain-1-1"]
    assert configuration(simulation) == CONFIG
    queue = simulation.job.status.queue
    assert queue is not None
    assert (queue.granted, quota(simulation)) == (2, 2)
    assert simulation.attempt.resized == "It has 2 nodes: Kueue has admitted 2 of the 4 that it asks for."
    assert "reclaimablePods" not in simulation.workloads[NAME]["status"]


def test_what_is_granted_and_cannot_be_used_is_given_back() -> None:
    simulation = granted(3)
    assert world(simulation) == (2, 2, 2)
    assert simulation.workloads[NAME]["status"]["reclaimablePods"] == [{"name": "ranks", "count": 2}]
    assert quota(simulation) == 2
    assert simulation.attempt.resized == "It has 2 nodes: Kueue has admitted 3 of the 4 that it asks for."


def test_a_run_that_is_granted_all_is_as_any_other() -> None:
    simulation = granted(4)
    queue = simulation.job.status.queue
    assert queue is not None
    assert (world(simulation), queue.granted, simulation.attempt.resized) == ((4, 4, 1), None, None)


def test_a_grant_below_the_fewest_starts_nothing_and_says_so() -> None:
    simulation = asking()
    admit(simulation, count=1)
    simulation.settle()
    assert (simulation.pods, simulation.attempt.phase) == ({}, Phase.QUEUED)
    assert "is admitted with 1 pods, and the run needs 2 at least" in simulation.condition(ConditionType.READY).message


def test_the_attempt_that_follows_asks_for_all_again_when_the_pods_have_ended() -> None:
    simulation = granted(3)
    fail(simulation)
    assert has_quota(simulation), "ranks may still save"
    simulation.remove()
    simulation.settle()
    assert (simulation.attempt.number, simulation.attempt.phase) == (2, Phase.QUEUED)
    assert (quota(simulation), condition(simulation, "Requeued")) == (0, ("True", "Restarted"))
    assert not simulation.workloads[NAME]["status"].get("reclaimablePods"), "it asks for all"
    admit(simulation)
    simulation.train()
    assert world(simulation) == (4, 4, 1)
    assert [write for write in simulation.writes if write == f"Workload/{NAME}"] == [f"Workload/{NAME}"], "its place"


def test_the_attempt_that_follows_may_be_granted_fewer_again() -> None:
    simulation = granted(2)
    fail(simulation)
    simulation.remove()
    simulation.settle()
    admit(simulation, count=3)
    simulation.train()
    assert (simulation.attempt.number, world(simulation), quota(simulation)) == (2, (2, 2, 2), 2)


def test_an_evicted_run_asks_for_all_again() -> None:
    simulation = granted(3)
    evict(simulation)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    assert quota(simulation) == 0
    admit(simulation)
    simulation.train()
    assert world(simulation) == (4, 4, 1)


def test_a_run_for_which_the_scheduler_has_no_room_keeps_quota_for_what_it_uses() -> None:
    simulation = asking()
    admit(simulation)
    simulation.settle()
    no_room(simulation, 2, 3)
    simulation.settle()
    simulation.wait(301)
    simulation.settle()
    assert quota(simulation) == 4, "its pods still end"
    simulation.remove()
    simulation.train()
    assert (simulation.attempt.number, world(simulation), quota(simulation)) == (2, (2, 2, 2), 2)
    fail(simulation)
    simulation.remove()
    simulation.settle()
    assert quota(simulation) == 0
    admit(simulation)
    simulation.train()
    assert world(simulation) == (4, 4, 1)


def test_a_suspended_run_asks_for_all_when_it_is_resumed() -> None:
    simulation = granted(2)
    suspend_and_resume(simulation)
    simulation.settle()
    (pod_set,) = simulation.workloads[NAME]["spec"]["podSets"]
    assert (simulation.job.status.state, pod_set["count"]) == (State.QUEUED, 4)
    admit(simulation)
    simulation.train()
    assert world(simulation) == (4, 4, 1)
