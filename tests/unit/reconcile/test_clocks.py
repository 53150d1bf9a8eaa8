"""Nodes' clocks are an hour ahead or behind: no wait is skipped or prolonged, and no other rank is blamed."""

import pytest

from deepspeed_operator.api.status import State
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
