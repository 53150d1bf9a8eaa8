"""Which losses of a running attempt another pod takes the place of, and which end the attempt, or the run."""

from dataclasses import replace
from typing import Any

import pytest

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.status import State
from deepspeed_operator.reconcile.observe.checkpoints import checkpoint_of
from deepspeed_operator.reconcile.observe.observed import AgentReport
from tests.unit.reconcile.simulation import Simulation, agent_says
from tests.unit.reconcile.test_replacements import delete, replacements, restart, running


def _new_attempt(simulation: Simulation) -> None:
    simulation.settle()
    simulation.wait(12)
    simulation.settle()
    assert not replacements(simulation)
    assert simulation.attempt.phase is Phase.BACKING_OFF


@pytest.mark.parametrize(
    "given",
    [
        {"restartInPlace": False},
        {"replacementDeadlineSeconds": 0},
        {"training": {"launcher": "DeepSpeed"}},
        {"maxInfrastructureRestarts": 1, "again": True},
    ],
    ids=["not in place", "no time", "another launcher", "budget"],
)
def test_where_no_pod_is_replaced_a_new_attempt_begins(given: dict[str, Any]) -> None:
    again = given.pop("again", False)
    simulation = running(**given)
    if again:
        delete(simulation)
        simulation.settle()
        restart(simulation)
        delete(simulation, 2)
        simulation.settle()
        simulation.wait(12)
        simulation.settle()
        assert simulation.attempt.phase is Phase.ENDED, "the budget is one restart"
        return
    delete(simulation)
    _new_attempt(simulation)


def test_a_rule_that_says_fail_ends_the_run() -> None:
    simulation = running(rules=[{"reasons": ["PodDeleted"], "action": "Fail"}])
    delete(simulation)
    simulation.wait(12)
    simulation.settle()
    assert (simulation.job.status.state, replacements(simulation)) == (State.FAILED, [])


def test_more_than_half_lost_at_once_is_a_new_attempt() -> None:
    simulation = running()
    for index in (1, 2, 3):
        delete(simulation, index)
    _new_attempt(simulation)


def test_a_rank_that_failed_is_no_lost_pod() -> None:
    simulation = running(maxRestarts=3)
    simulation.end(1, 1, agent_says(1, 1, 1, "UserError", pod="pretrain-1-1"))
    _new_attempt(simulation)


def test_a_device_that_failed_costs_its_pod_and_blames_its_node_once() -> None:
    simulation = running()
    simulation.end(1, 1, agent_says(1, 1, 1, "DeviceFault", pod="pretrain-1-1", signature="Xid 79"))
    simulation.settle()
    assert [each.reason for each in replacements(simulation)] == ["DeviceFault"]
    assert [(each.name, len(each.times)) for each in simulation.run.blamed_nodes or []] == [("node1", 1)]
    restart(simulation)
    simulation.wait(60)
    simulation.end(1, 1, agent_says(1, 1, 1, "DeviceFault", pod="pretrain-1-1-r1", signature="Xid 79"))
    simulation.settle()
    assert simulation.attempt.excluded_nodes == ["node1"]
    terms = simulation.created[-1]["spec"]["affinity"]["nodeAffinity"]
    assert "node1" in str(terms), "the next pod keeps off it"


def test_a_pod_that_reaches_nobody_is_replaced_once_it_is_known_to_be_the_only_one() -> None:
    simulation = running()
    said = agent_says(0, None, None, "PeerLost", pod="pretrain-1-0", signature="no sign of life from pod pretrain-1-0")
    simulation.end(1, 1, said)
    simulation.settle()
    assert not replacements(simulation)
    simulation.wait(12)
    simulation.settle()
    assert [(each.pod, each.reason) for each in replacements(simulation)] == [("pretrain-1-1", "PeerLost")]


def test_the_result_of_a_gang_wins_over_a_lost_pod() -> None:
    simulation = running()
    delete(simulation)
    for index in (0, 2, 3):
        simulation.end(index, 0, agent_says(index, None, 0, "Completed"))
    simulation.settle()
    assert (simulation.job.status.state, replacements(simulation)) == (State.COMPLETE, [])


@pytest.mark.parametrize("saved", [True, False])
def test_a_pod_out_of_memory_is_replaced_where_the_ranks_have_saved_since_they_began(saved: bool) -> None:
    simulation = running()
    told = checkpoint_of({"path": "/checkpoints", "tag": "step5", "step": 5, "progressed": saved})
    simulation.agent = AgentReport(1, simulation.now, checkpoint=told)
    simulation.wait(61)
    simulation.settle()
    killed = agent_says(1, 1, -9, "HostOutOfMemory", pod=simulation.pod(1).name)
    simulation.end(1, 137, killed, "OOMKilled")
    for other in simulation.pods.values():
        if not other.finished:
            simulation.pods[other.name] = replace(other, ready=False)
    simulation.settle()
    simulation.wait(12)
    simulation.settle()
    assert [each.reason for each in replacements(simulation)] == (["HostOutOfMemory"] if saved else [])
    assert simulation.job.status.state is (State.RESTARTING if saved else State.FAILED)
