"""What conditions say: the words for the whole job stand in Ready, and beside it only where they are about."""

import pytest

from deepspeed_operator.api.status import ConditionType, State
from tests.unit.reconcile.simulation import Simulation, job
from tests.unit.reconcile.test_life_of_a_job import running


def invalid() -> Simulation:
    simulation = Simulation(job(dsConfig={"train_batch_size": "many"}))
    simulation.settle()
    return simulation


def starting() -> Simulation:
    simulation = Simulation(job())
    simulation.settle()
    return simulation


def suspended() -> Simulation:
    simulation = running()
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    return simulation


def ended(exit_code: int) -> Simulation:
    simulation = running()
    simulation.end(0)
    simulation.end(1, exit_code)
    simulation.settle()
    return simulation


@pytest.mark.parametrize(
    ("simulation", "state", "about"),
    [
        (invalid(), State.INVALID, ConditionType.ACCEPTED),
        (starting(), State.STARTING, ConditionType.RUNNING),
        (running(), State.RUNNING, ConditionType.RUNNING),
        (suspended(), State.SUSPENDED, ConditionType.SUSPENDED),
        (ended(0), State.COMPLETE, ConditionType.COMPLETE),
        (ended(7), State.FAILED, ConditionType.FAILED),
    ],
    ids=lambda each: each.value if isinstance(each, State) else "",
)
def test_the_same_words_stand_in_ready_and_where_they_are_about(
    simulation: Simulation, state: State, about: ConditionType
) -> None:
    assert simulation.job.status.state is state
    words = simulation.condition(ConditionType.READY).message
    having = [each.type for each in simulation.job.status.conditions if words in each.message]
    assert having == [about, ConditionType.READY]


@pytest.mark.parametrize("simulation", [starting(), ended(7)], ids=["Reconciling", "Stalled"])
def test_a_condition_that_tools_read_points_to_the_words(simulation: Simulation) -> None:
    kinds = (ConditionType.RECONCILING, ConditionType.STALLED)
    assert sorted(simulation.condition(kind).message for kind in kinds) == ["", "See condition Ready."]
