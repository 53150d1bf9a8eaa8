"""Jobs that ask for a queue while it is not there, or does not take what it is told."""

from datetime import timedelta

import pytest

from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.reconcile.actions import PatchWorkload
from tests.unit.reconcile.simulation import Simulation, job
from tests.unit.reconcile.test_queue import FLAVORS, NAME, QUEUED, admit, condition, queued, trained


@pytest.mark.parametrize("problem", ["the cluster does not serve kueue.x-k8s.io/v1beta2", "workloads is forbidden"])
def test_a_queue_that_is_not_there_is_said_and_healed(problem: str) -> None:
    simulation = Simulation(job(**QUEUED), of_queue=dict(FLAVORS), queue_problem=problem, watched=False)
    outcome = simulation.settle()
    assert (simulation.pods, simulation.workloads) == ({}, {})
    ready = simulation.condition(ConditionType.READY)
    assert (ready.status, ready.reason) == ("False", "QueueUnavailable")
    assert problem in ready.message
    assert outcome.check_at is not None
    assert outcome.check_at <= simulation.now + timedelta(seconds=30)
    simulation.queue_problem = None
    simulation.wait(30)
    simulation.settle()
    assert (simulation.job.status.state, list(simulation.workloads)) == (State.QUEUED, [NAME])


def test_what_runs_goes_on_when_kueue_is_gone() -> None:
    simulation = trained()
    simulation.queue_problem = "the cluster does not serve kueue.x-k8s.io/v1beta2"
    simulation.wait(60)
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING


def test_what_kueue_refuses_for_now_is_tried_again_after_a_while() -> None:
    simulation = queued()
    admit(simulation)
    simulation.queue_refuses = "failed calling webhook"
    simulation.train()
    assert condition(simulation, "PodsReady") == ("", "")
    asleep = simulation.step()
    assert not any(isinstance(each, PatchWorkload) for each in asleep.actions)
    assert asleep.check_at == simulation.now + timedelta(seconds=30)
    simulation.queue_refuses = None
    simulation.wait(30)
    simulation.settle()
    assert condition(simulation, "PodsReady") == ("True", "Started")


def test_a_job_that_cannot_be_queued_for_now_says_so_and_is_queued_then() -> None:
    simulation = Simulation(job(**QUEUED), of_queue=dict(FLAVORS), queue_refuses="failed calling webhook")
    simulation.settle()
    ready = simulation.condition(ConditionType.READY)
    assert (ready.status, ready.reason) == ("False", "QueueUnavailable")
    simulation.queue_refuses = None
    simulation.wait(30)
    simulation.settle()
    assert (simulation.job.status.state, list(simulation.workloads)) == (State.QUEUED, [NAME])


def test_without_a_watch_the_queue_is_asked_again() -> None:
    simulation = Simulation(job(**QUEUED), of_queue=dict(FLAVORS), watched=False)
    outcome = simulation.settle()
    assert outcome.check_at is not None
    assert outcome.check_at <= simulation.now + timedelta(seconds=10)
    admit(simulation)
    simulation.wait(10)
    simulation.train()


def test_a_queue_that_does_not_answer_is_asked_less_often() -> None:
    simulation = Simulation(job(**QUEUED), of_queue=dict(FLAVORS), watched=False, queue_problem="nobody answers")
    outcome = simulation.settle()
    assert outcome.check_at == simulation.now + timedelta(seconds=30)
