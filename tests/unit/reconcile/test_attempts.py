"""Where an attempt stands, and what is kept of those that have ended."""

from deepspeed_operator.api.attempt_status import MAX_ATTEMPTS, AttemptOutcome, Phase
from deepspeed_operator.api.status import State
from deepspeed_operator.reconcile.observe.observed import Facts
from tests.unit.reconcile.simulation import Simulation, agent_says, job
from tests.unit.reconcile.test_life_of_a_job import running, started


def ended(simulation: Simulation) -> list[tuple[int, str, AttemptOutcome]]:
    return [(each.number, each.run_id, each.outcome) for each in simulation.job.status.attempts]


def suspend(simulation: Simulation) -> None:
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.remove()
    simulation.settle()


def test_each_phase_is_recorded_as_it_is_entered() -> None:
    simulation = started()
    assert simulation.attempt.phase is Phase.STARTING
    assert simulation.attempt.running_time is None
    simulation.wait(9)
    simulation.run_all()
    simulation.settle()
    assert simulation.attempt.phase is Phase.RUNNING
    assert (simulation.attempt.start_time, simulation.attempt.running_time) == (
        "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z",
    )  # fmt: skip
    simulation.edit(suspend=True)
    simulation.settle()
    assert simulation.attempt.phase is Phase.STOPPING
    simulation.remove()
    simulation.settle()
    assert simulation.attempt.phase is Phase.SUSPENDED
    simulation.edit(suspend=False)
    simulation.train()
    simulation.end(0)
    simulation.end(1)
    simulation.settle()
    assert (simulation.attempt.number, simulation.attempt.phase) == (2, Phase.ENDED)
    assert ended(simulation) == [(1, "", AttemptOutcome.SUSPENDED), (2, "", AttemptOutcome.SUCCEEDED)]


def test_a_failed_attempt_is_kept_with_its_cause_and_where_that_lies() -> None:
    simulation = running()
    simulation.wait(100)
    simulation.end(1, 7, agent_says(1, 1, 7))
    simulation.wait(12)
    simulation.settle()
    simulation.edit(runId="b")
    simulation.settle()
    assert simulation.job.status.failure is None, "the run that goes on has not failed"
    (attempt,) = simulation.job.status.attempts
    assert (attempt.outcome, attempt.reason, attempt.category) == (AttemptOutcome.FAILED, "RankFailed", "User")
    assert (attempt.rank, attempt.pod, attempt.node) == (1, "pretrain-1-1", "node1")
    assert (attempt.running_time, attempt.end_time) == ("2026-01-01T00:00:00Z", "2026-01-01T00:01:52Z")


def test_a_run_that_another_one_replaces_leaves_its_attempt_replaced() -> None:
    simulation = running(runId="a")
    simulation.edit(runId="b")
    simulation.settle()
    assert ended(simulation) == [(1, "a", AttemptOutcome.REPLACED)]
    assert (simulation.run.id, simulation.attempt.number, simulation.attempt.phase) == ("b", 2, Phase.STARTING)


def test_an_attempt_is_kept_once_though_it_is_suspended_and_its_run_then_replaced() -> None:
    simulation = running(runId="a")
    suspend(simulation)
    simulation.edit(runId="b", suspend=False)
    simulation.settle()
    assert ended(simulation) == [(1, "a", AttemptOutcome.SUSPENDED)]


def test_the_last_ten_are_kept() -> None:
    simulation = running()
    for _ in range(MAX_ATTEMPTS + 2):
        suspend(simulation)
        simulation.edit(suspend=False)
        simulation.train()
    assert [each.number for each in simulation.job.status.attempts] == [*range(3, MAX_ATTEMPTS + 3)]


def test_pods_that_are_refused_and_given_back_are_no_result_for_an_operator_that_has_just_begun() -> None:
    simulation = Simulation(job(), refuse_pods="exceeded quota: gpus")
    simulation.settle()
    assert simulation.attempt.phase is Phase.REFUSED
    assert simulation.attempt.obstacle is not None
    assert simulation.attempt.obstacle.reason == "PodsRefused"
    assert simulation.pod(0).deleted_at is not None
    simulation.facts = Facts()
    simulation.end(0, 143)
    simulation.settle()
    assert (simulation.job.status.state, simulation.attempt.phase) == (State.STARTING, Phase.REFUSED)
    simulation.remove()
    simulation.refuse_pods = None
    simulation.train()
    assert (simulation.attempt.number, simulation.attempt.obstacle) == (1, None)


def test_what_held_an_attempt_up_is_forgotten_once_it_runs() -> None:
    simulation = started()
    simulation.change(0, unschedulable="0/2 nodes are available")
    simulation.settle()
    assert simulation.attempt.obstacle is not None
    assert simulation.attempt.obstacle.reason == "Unschedulable"
    simulation.change(0, unschedulable=None)
    simulation.run_all()
    simulation.settle()
    assert (simulation.attempt.phase, simulation.attempt.obstacle) == (Phase.RUNNING, None)
