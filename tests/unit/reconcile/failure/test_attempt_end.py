"""How an attempt ended is classified over all its pods."""

from datetime import timedelta

import pytest

from deepspeed_operator.api.status import State
from deepspeed_operator.reconcile.failure.attempt_end import (
    SETTLE,
    AttemptEnd,
    Failed,
    Succeeded,
    attempt_end,
    end_before_suspension,
)
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.messages import agent_message
from deepspeed_operator.reconcile.observe.observed import Observed
from tests.unit.reconcile.simulation import Simulation, agent_says, job


def gang_of(simulation: Simulation) -> Gang:
    return Gang.of(tuple(simulation.pods.values()), job="pretrain", uid="job-1", attempt=1, nodes=2)


def end_of(simulation: Simulation) -> AttemptEnd | None:
    pods = tuple(simulation.pods.values())
    return attempt_end(Observed(simulation.job, pods, simulation.facts, simulation.now), gang_of(simulation))


def test_an_attempt_has_succeeded_when_its_last_pod_has() -> None:
    simulation = Simulation(job()).train()
    simulation.end(0)
    assert end_of(simulation) is None
    simulation.wait(5)
    simulation.end(1)
    assert end_of(simulation) == Succeeded(simulation.now)


def test_an_attempt_has_failed_when_all_have_ended_or_could_have() -> None:
    simulation = Simulation(job()).train()
    simulation.end(1, 1, agent_says(1, 1, 1))
    assert end_of(simulation) is None
    simulation.now += SETTLE - timedelta(seconds=1)
    assert end_of(simulation) is None
    simulation.wait(1)
    end = end_of(simulation)
    assert isinstance(end, Failed)
    assert (end.failure.reason, end.failure.rank) == ("RankFailed", 1)


def test_an_attempt_that_was_told_to_end_has_failed_only_by_what_was_not_its_deletion() -> None:
    simulation = Simulation(job()).train()
    simulation.end(0, 143, agent_says(0, None, None, "Terminated"))
    simulation.end(1, 1, agent_says(0, None, None, "PeerLost"))
    assert end_before_suspension(gang_of(simulation)) is None
    simulation.end(1, 1, agent_says(1, 1, 1))
    end = end_before_suspension(gang_of(simulation))
    assert isinstance(end, Failed)
    assert end.failure.reason == "RankFailed"


def test_what_a_pod_comes_to_after_its_gangs_success_is_no_failure() -> None:
    simulation = Simulation(job()).train()
    done = simulation.now
    simulation.end(0, 0, agent_says(0, None, None, "Completed"))
    simulation.wait(1)
    simulation.end(1, 137, reason="OOMKilled")
    assert end_of(simulation) == Succeeded(done)


def test_the_others_have_a_moment_to_end_by_themselves_after_the_gangs_success() -> None:
    simulation = Simulation(job()).train()
    done = simulation.now
    simulation.end(0, 0, agent_says(0, None, None, "Completed"))
    assert end_of(simulation) is None
    simulation.settle()
    simulation.wait(SETTLE.total_seconds())
    assert end_of(simulation) == Succeeded(done)
    simulation.settle()
    assert simulation.job.status.state is State.COMPLETE
    assert [simulation.pod(index).deleted_at is not None for index in (0, 1)] == [False, True]


def test_success_that_was_there_before_a_suspension_counts() -> None:
    simulation = Simulation(job()).train()
    simulation.end(0, 0, agent_says(0, None, None, "Completed"))
    simulation.end(1, 143, agent_says(1, None, None, "Terminated"))
    assert end_before_suspension(gang_of(simulation)) == Succeeded(simulation.now)


def test_how_the_other_ranks_ended_is_told_by_rank_0s_agent() -> None:
    simulation = Simulation(job()).train()
    told = {"failed": 12, "stopped": 3, "left": 1, "first": [[1, 1, 1, None, 0], [0, 0, None, 6, 0.4]]}
    simulation.end(1, 1, agent_says(1, 1, 1))
    simulation.end(0, 1, agent_says(1, 1, 1, ranks=told))
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert failure.ranks is not None
    assert (failure.ranks.failed, failure.ranks.stopped, failure.ranks.exited) == (12, 3, 1)
    assert failure.ranks.first == [
        "rank 1 in pod pretrain-1-1 exited with code 1",
        "rank 0 in pod pretrain-1-0 was killed by signal 6 (SIGABRT), 0.4 s later",
    ]


@pytest.mark.parametrize("first", [[[0, 0, 1, None, -1]], [[0, 0, 1]], [[1, 1, 1, None, 0.0]] * 11, "x"])
def test_what_no_agent_tells_of_ranks_is_left_and_the_rest_is_read(first: object) -> None:
    told = {"failed": 1, "stopped": 3, "left": 1, "first": first}
    message = agent_message(agent_says(1, 1, 1, ranks=told))
    assert message is not None
    assert (message.rank, message.ranks) == (1, None)
