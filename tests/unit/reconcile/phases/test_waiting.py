"""An attempt waits for old pods, and says of them what is seen: a newcomer deletes no node at second 0."""

from dataclasses import replace
from datetime import timedelta

from deepspeed_operator.api.status import ConditionType, State
from tests.unit.reconcile.simulation import GRACE, Simulation, job
from tests.unit.reconcile.test_life_of_a_job import running


def resumed_at_once() -> Simulation:
    simulation = running()
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.edit(suspend=False)
    simulation.settle()
    return simulation


def words(simulation: Simulation) -> str:
    ready = simulation.condition(ConditionType.READY)
    assert ready.reason == "WaitingForOldPods"
    return ready.message


def test_pods_that_end_within_their_grace_are_nothing_to_be_done_about() -> None:
    simulation = resumed_at_once()
    assert "pretrain-1-0 on node node0, pretrain-1-1 on node node1" in words(simulation)
    ends = "They end within their grace period, by 2026-01-01T00:00:45Z at the latest: there is nothing to do."
    assert ends in words(simulation)
    assert "kubectl" not in words(simulation)


def test_a_pod_whose_grace_is_over_is_to_be_looked_at() -> None:
    simulation = resumed_at_once()
    simulation.remove("pretrain-1-1")
    outcome = simulation.settle()
    killed_at = simulation.now + GRACE + timedelta(seconds=15)
    assert outcome.check_at == killed_at
    simulation.now = killed_at
    simulation.settle()
    assert "The grace period of pretrain-1-0 on node node0 is over: kubectl describe pod pretrain-1-0" in words(
        simulation
    )
    assert "kubectl delete node" not in words(simulation)


def test_a_node_that_does_not_answer_may_be_deleted() -> None:
    simulation = resumed_at_once()
    lost = simulation.pods["pretrain-1-1"]
    simulation.pods[lost.name] = replace(lost, lost_since=simulation.now)
    simulation.settle()
    assert "Node node1 has not answered since 2026-01-01T00:00:00Z" in words(simulation)
    assert "kubectl delete node node1" in words(simulation)
    assert "nothing to do" not in words(simulation)


def test_a_pod_that_garbage_collection_leaves_is_deleted_by_a_person() -> None:
    earlier = running()
    later = Simulation(job().model_copy(update={"metadata": earlier.job.metadata.model_copy(update={"uid": "job-2"})}))
    later.pods = dict(earlier.pods)
    later.settle()
    assert "delete what it leaves: kubectl delete pod pretrain-1-0." in words(later)


def test_pods_that_are_given_back_and_never_end_do_not_hold_the_attempt_for_ever() -> None:
    simulation = Simulation(job(nodes=4, lifecycle={"startupDeadlineSeconds": 60}), refuse_pods="exceeded quota: gpus")
    simulation.settle()
    assert [name for name, pod in simulation.pods.items() if pod.deleted_at] == ["pretrain-1-0"]
    outcome = simulation.settle()
    assert outcome.check_at == simulation.now + timedelta(seconds=60)
    simulation.wait(60)
    simulation.settle()
    assert simulation.job.status.state is State.FAILED
    failure = simulation.job.status.failure
    assert failure is not None
    assert failure.reason == "StartupDeadlineExceeded"
    assert "exceeded quota: gpus" in failure.message
