"""Pods on a node that does not answer: deleted by force only once none of their ranks can write."""

from datetime import timedelta
from typing import Any

import pytest

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.status import ConditionType, State
from tests.unit.reconcile.simulation import GRACE, Simulation, agent_says, job


def lose(simulation: Simulation, *indices: int) -> None:
    """Nodes go silent, and the cluster deletes their pods, which nobody can end."""
    for index in indices:
        simulation.change(index, ready=False, lost_since=simulation.now)
    simulation.wait(30)
    for index in indices:
        simulation.change(index, deleted_at=simulation.now, grace_ends=simulation.now + GRACE)


def lost(nodes: int = 2, **policy: Any) -> Simulation:
    """All pods but rank 0's are lost, whose agent tells so, unless it is alone."""
    made = Simulation(job(nodes=nodes, dsConfig={"train_micro_batch_size_per_gpu": 1}, failurePolicy=policy)).train()
    lose(made, *(range(1, nodes) if nodes > 1 else (0,)))
    if nodes > 1:
        made.end(0, 1, agent_says(1, None, None, "PeerLost"))
    made.wait(13)
    made.settle()
    return made


def forced(simulation: Simulation) -> list[str]:
    return [write for write in simulation.writes if write.endswith("by force")]


def test_a_lost_pod_is_let_go_after_its_fence_and_the_run_goes_on_elsewhere() -> None:
    simulation = lost()
    assert simulation.attempt.phase is Phase.BACKING_OFF
    assert simulation.job.status.attempts[-1].reason in {"NodeLost", "PeerLost"}
    simulation.wait(17)
    simulation.settle()
    assert forced(simulation) == [], "its peer has just ended"
    simulation.wait(10)
    simulation.settle()
    assert forced(simulation) == ["delete pretrain-1-1 by force"]
    simulation.wait(20)
    simulation.settle()
    assert {pod.name for pod in simulation.pods.values() if pod.attempt == 2} == {"pretrain-2-0", "pretrain-2-1"}


def test_the_next_attempt_waits_and_says_until_when() -> None:
    simulation = lost(nodeLoss={"forceDeleteAfterSeconds": 120})
    simulation.wait(20)
    simulation.settle()
    message = simulation.condition(ConditionType.RUNNING).message
    assert "Node node1 has not answered since 2026-01-01T00:00:00Z" in message
    assert "Its pods are deleted by force at 2026-01-01T00:02:30Z" in message
    assert simulation.outcome().check_at == simulation.now + timedelta(seconds=87)
    simulation.wait(87)
    simulation.settle()
    assert forced(simulation) == ["delete pretrain-1-1 by force"]


@pytest.mark.parametrize(("seconds", "goes"), [(None, False), (-1, False), (60, True)])
def test_the_only_pod_of_a_job_is_let_go_only_if_the_job_says_so(seconds: int | None, goes: bool) -> None:
    """It may train on where nobody sees it: it has no peer that it could miss."""
    simulation = lost(1, **({} if seconds is None else {"nodeLoss": {"forceDeleteAfterSeconds": seconds}}))
    for _ in range(2):
        simulation.wait(3600)
        simulation.settle()
    assert bool(forced(simulation)) is goes
    assert simulation.job.status.state is (State.STARTING if goes else State.RUNNING)


def test_a_pod_whose_node_has_lost_the_api_server_alone_is_not_let_go_before_its_peers_have_ended() -> None:
    simulation = Simulation(job(failurePolicy={"replacementDeadlineSeconds": 0})).train()
    lose(simulation, 1)
    simulation.wait(31)
    simulation.settle()
    assert (simulation.attempt.phase, forced(simulation)) == (Phase.BACKING_OFF, [])
    assert "delete pretrain-1-0" in simulation.writes
    simulation.wait(30)
    simulation.settle()
    assert forced(simulation) == [], "its peers may save for 30 s, and it may for as long after they have gone"
    simulation.wait(30)
    simulation.settle()
    assert forced(simulation) == ["delete pretrain-1-1 by force"]


def test_pods_that_are_lost_together_may_still_reach_each_other() -> None:
    simulation = Simulation(job(failurePolicy={})).train()
    lose(simulation, 0, 1)
    simulation.wait(3600)
    simulation.settle()
    assert forced(simulation) == []


def test_never_means_never_whatever_follows() -> None:
    simulation = lost(nodeLoss={"forceDeleteAfterSeconds": -1})
    simulation.wait(3600)
    simulation.settle()
    assert forced(simulation) == []
    assert simulation.condition(ConditionType.RUNNING).reason == "WaitingForOldPods"


def test_a_pod_whose_node_answers_again_is_ended_by_its_kubelet() -> None:
    simulation = lost()
    simulation.change(1, lost_since=None)
    simulation.wait(3600)
    simulation.settle()
    assert forced(simulation) == []


def test_a_node_that_was_at_fault_twice_in_a_day_is_avoided_for_a_day() -> None:
    simulation = Simulation(job(failurePolicy={})).train()
    for _ in range(2):
        assert simulation.attempt.excluded_nodes is None
        fail_on_node1(simulation)
    assert simulation.attempt.excluded_nodes == ["node1"]
    pod = simulation.created[-1]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node1"]}]}
    simulation.change(1, unschedulable="0/2 nodes are available")
    simulation.settle()
    assert "Nodes node1 are avoided" in simulation.condition(ConditionType.RUNNING).message
    simulation.change(1, unschedulable=None)
    simulation.train()
    simulation.wait(25 * 3600)
    fail_on_node1(simulation, "Preempted")
    assert simulation.attempt.excluded_nodes is None
    assert "affinity" not in simulation.created[-1]["spec"]


@pytest.mark.parametrize(("policy", "reason"), [({"avoidBlamedNodes": False}, "PodFailed"), ({}, "Preempted")])
def test_no_node_is_avoided_that_is_not_to_blame(policy: dict[str, Any], reason: str) -> None:
    simulation = Simulation(job(failurePolicy=policy)).train()
    for _ in range(3):
        fail_on_node1(simulation, reason)
    assert simulation.attempt.excluded_nodes is None


def fail_on_node1(simulation: Simulation, reason: str = "PodFailed") -> None:
    simulation.end(0, 0)
    if reason == "Preempted":
        gone: dict[str, Any] = {
            "deleted_at": simulation.now,
            "disruption": "PreemptionByScheduler",
            "grace_ends": simulation.now,
        }
        simulation.end(1, 143, agent_says(1, None, None, "Terminated", stepped=True), **gone)
    else:
        simulation.change(1, phase="Failed", ready=False, reason="UnexpectedAdmissionError", message="device gone")
    simulation.wait(700)
    simulation.settle()
    simulation.wait(400)
    simulation.settle()
    if simulation.attempt.excluded_nodes is None:
        simulation.train()
