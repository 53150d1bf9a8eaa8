"""A job that ended the operator's process: left alone for a while, and its pods with it."""

from datetime import timedelta

import pytest

from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.reconcile.observe.observed import SetAside
from tests.unit.reconcile.simulation import Simulation, job

WHY = "the operator's process ended while it worked on this job"


def aside(simulation: Simulation) -> Simulation:
    """The process ends, and begins again."""
    until = simulation.now + timedelta(seconds=10)
    simulation.facts = type(simulation.facts)(aside=SetAside(WHY, until))
    return simulation


def over(simulation: Simulation) -> Simulation:
    simulation.wait(10)
    simulation.facts = type(simulation.facts)()
    return simulation


def test_a_new_job_says_that_it_is_set_aside_and_begins_later() -> None:
    simulation = aside(Simulation(job()))
    simulation.settle()
    assert simulation.writes == ["status"]
    accepted = simulation.condition(ConditionType.ACCEPTED)
    assert (accepted.status, accepted.reason) == ("False", "Quarantined")
    assert f"{WHY}. It is looked at again at 2026-01-01T00:00:10Z" in accepted.message
    assert [event.reason for event in simulation.events] == ["Quarantined"]
    over(simulation).train()


def test_a_running_job_runs_on_and_says_so() -> None:
    simulation = aside(Simulation(job()).train())
    simulation.writes.clear()
    simulation.settle()
    assert simulation.writes == ["status"]
    assert simulation.job.status.state is State.RUNNING
    running = simulation.condition(ConditionType.RUNNING)
    assert (running.status, running.reason) == ("True", "Quarantined")
    assert simulation.condition(ConditionType.ACCEPTED).reason == "Accepted"
    over(simulation).settle()
    assert simulation.condition(ConditionType.RUNNING).reason == "Running"
    assert all(pod.deleted_at is None for pod in simulation.pods.values())


@pytest.mark.parametrize("code", [0, 1])
def test_a_finished_job_stays_as_it_is(code: int) -> None:
    simulation = Simulation(job(nodes=1)).train()
    simulation.end(0, code)
    simulation.settle()
    before = simulation.job.status
    aside(simulation).settle()
    assert simulation.job.status == before
