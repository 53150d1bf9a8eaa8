"""Nodes' clocks are an hour ahead or behind: no wait is skipped or prolonged, and no other rank is blamed."""

import json

import pytest

from deepspeed_operator.api.status import State
from deepspeed_operator.reconcile.observe.messages import agent_message
from deepspeed_operator.reconcile.observe.pods import moment
from tests.unit.reconcile.simulation import agent_says
from tests.unit.reconcile.test_life_of_a_job import running

HOUR = 3600.0
apart = pytest.mark.parametrize("ahead", [HOUR, 0.0, -HOUR])


@apart
def test_a_sidecar_gets_its_time_to_end(ahead: float) -> None:
    simulation = running()
    simulation.end(0)
    simulation.end(1, phase="Running", ahead=ahead)
    simulation.settle()
    simulation.wait(9)
    simulation.settle()
    assert simulation.pod(1).deleted_at is None
    simulation.wait(1)
    simulation.settle()
    assert simulation.pod(1).deleted_at is not None


@apart
def test_the_peers_of_a_failed_pod_get_their_time_to_explain_it(ahead: float) -> None:
    simulation = running()
    simulation.end(1, 7, agent_says(1, 1, 7), ahead=ahead)
    simulation.settle()
    simulation.wait(11)
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    simulation.wait(1)
    simulation.settle()
    assert simulation.job.status.state is State.FAILED


@apart
@pytest.mark.parametrize("first", [0, 1])
def test_who_failed_first_is_told_by_when_they_were_seen_to_end(ahead: float, first: int) -> None:
    simulation = running()
    for index in (first, 1 - first):
        simulation.end(index, 7, agent_says(index, index, 7), ahead=ahead if index else 0)
        simulation.wait(3)
    simulation.settle()
    assert simulation.job.status.failure is not None
    assert simulation.job.status.failure.rank == first


def test_who_failed_first_while_the_operator_was_away_is_told_by_the_nodes() -> None:
    simulation = running()
    simulation.wait(600)
    simulation.end(0, 7, agent_says(0, 0, 7), ahead=-300)
    simulation.end(1, 7, agent_says(1, 1, 7), ahead=-303)
    simulation.settle()
    assert simulation.job.status.failure is not None
    assert simulation.job.status.failure.rank == 1


@apart
def test_a_run_ends_after_it_began_and_not_in_the_future(ahead: float) -> None:
    simulation = running()
    simulation.wait(60)
    simulation.end(0)
    simulation.end(1, ahead=ahead)
    simulation.settle()
    run = simulation.run
    assert run.completion_time is not None
    assert moment(run.start_time) <= moment(run.completion_time) <= simulation.now


@pytest.mark.parametrize("ahead", [600, 30, -30, -600])
def test_clocks_that_the_hub_has_measured_change_nothing_of_who_failed_first(ahead: float) -> None:
    """Two pods are killed with their agents while the operator is away; the third one's tells of their clocks."""
    simulation = running(nodes=3)
    simulation.wait(600)
    simulation.end(0, 137, ahead=ahead - 300)
    simulation.end(1, 137, ahead=-303)
    simulation.end(2, 1, agent_says(0, None, None, reason="PeerLost", clocks={"0": ahead}), ahead=-290)
    simulation.settle()
    assert simulation.job.status.failure is not None
    assert simulation.job.status.failure.pod == "pretrain-1-1"


@pytest.mark.parametrize("said", [{"1": 1e99}, {"x": 1}, [600], {"1": float("nan")}, dict.fromkeys(range(65), 9)])
def test_a_clock_that_nobody_has_is_left_as_it_is(said: object) -> None:
    message = agent_message(json.dumps({"protocol": 3, "reason": "PeerLost", "clocks": said}))
    assert message is not None
    assert message.clocks == {}
