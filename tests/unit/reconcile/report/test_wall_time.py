"""Where a run's wall time went, over the lives of operators, hubs and attempts."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.goodput import Goodput
from deepspeed_operator.api.status import DeepSpeedJobStatus
from deepspeed_operator.reconcile.observe.observed import AgentReport, Facts
from deepspeed_operator.reconcile.observe.pods import moment, timestamp
from deepspeed_operator.reconcile.observe.read_as import read_as
from deepspeed_operator.reconcile.observe.told_progress import ToldProgress
from deepspeed_operator.reconcile.observe.told_wall_time import AgentWallTime
from tests.unit.reconcile.simulation import Simulation, agent_says, job

AGAIN = {"maxRestarts": 9, "maxInfrastructureRestarts": 9, "replacementDeadlineSeconds": 0}


def seconds(simulation: Simulation) -> dict[str, float]:
    """The kinds of which there are any."""
    found = goodput(simulation).seconds
    assert found.total == pytest.approx(found_until(simulation), abs=1)
    return {name: value for name, value in found.model_dump().items() if value}


def goodput(simulation: Simulation) -> Goodput:
    found = simulation.job.status.goodput
    assert found is not None
    return found


def found_until(simulation: Simulation) -> float:
    return (moment(goodput(simulation).until) - moment(simulation.run.start_time)).total_seconds()


def told(**given: float) -> AgentWallTime:
    kinds = dict.fromkeys(("starting", "restarting", "productive", "repeated", "saving", "hung"), 0)
    found = read_as(AgentWallTime, {**kinds, "secondsSince": 0, "reached": 0, **given})
    assert found is not None
    return found


def tell(simulation: Simulation, after: float, **given: float) -> None:
    """So many seconds later rank 0's agent tells this."""
    simulation.wait(after)
    simulation.agent = AgentReport(simulation.attempt.number, simulation.now, wall_time=told(**given))
    simulation.settle()


def left(rank: int, code: int, **given: float) -> str:
    return agent_says(rank, rank, code, wallTime=told(**given).model_dump(by_alias=True))


def new_operator(simulation: Simulation) -> None:
    """Its memory is gone; what it has written is not."""
    status = json.loads(simulation.job.status.model_dump_json(by_alias=True, exclude_none=True))
    simulation.job = simulation.job.model_copy(update={"status": DeepSpeedJobStatus.model_validate(status)})
    simulation.facts = Facts()


def fail(simulation: Simulation, **given: float) -> None:
    """Rank 1 fails, and the agents leave what they know."""
    for index in (0, 1):
        simulation.end(index, 1, left(index, 1, **given))
    simulation.settle()


def trained(**spec: Any) -> Simulation:
    """A job whose pods wait 100 s for room and whose ranks then need 20 s to run."""
    simulation = Simulation(job(failurePolicy=AGAIN, **spec))
    simulation.settle()
    for index in (0, 1):
        simulation.change(index, unschedulable="0/2 nodes are available: 2 Insufficient cpu.")
    simulation.settle()
    simulation.wait(100)
    for index in (0, 1):
        simulation.change(index, unschedulable=None, node=f"node{index}", address=f"10.0.0.{index + 1}")
    simulation.settle()
    simulation.wait(20)
    simulation.run_all()
    simulation.settle()
    return simulation


def test_what_the_ranks_wait_for_is_not_a_start() -> None:
    simulation = trained()
    assert simulation.attempt.phase is Phase.RUNNING
    assert seconds(simulation) == {"queued": 100, "starting": 20}
    assert goodput(simulation).percent is None, "no step was seen"


def test_an_agent_tells_of_the_seconds_before_it_was_heard_and_none_counts_twice() -> None:
    simulation = trained()
    before = list(simulation.writes)
    # It has run for 95 s, of which 15 were before all ranks were seen to run.
    tell(simulation, 80, starting=30, productive=60, secondsSince=5)
    assert simulation.writes == before, "goodput alone is no news"
    fail(simulation, starting=30, productive=64, secondsSince=1)
    assert seconds(simulation) == {"queued": 100, "starting": 35, "productive": 64, "restarting": 1}
    assert goodput(simulation).percent == 32.0
    assert goodput(simulation).ettr_percent == 64.0


@pytest.mark.parametrize("lives", [1, 9])
def test_attempts_and_operators_come_and_go_and_nothing_is_lost_or_counted_twice(lives: int) -> None:
    def next_life() -> None:
        if lives > 1:
            new_operator(simulation)

    simulation = trained()
    next_life()
    simulation.wait(200)  # in which nobody looked
    next_life()
    fail(simulation, starting=20, productive=170, saving=10, reached=40)  # the ranks ran 200 s
    assert simulation.attempt.phase is Phase.BACKING_OFF
    at_failure = {"queued": 100, "starting": 40, "productive": 170, "saving": 10}
    assert {**seconds(simulation), "restarting": 0} == {**at_failure, "restarting": 0}
    next_life()
    simulation.wait(60)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    assert simulation.attempt.number == 2
    assert simulation.attempt.reached_step == 40
    next_life()
    simulation.wait(30)
    simulation.run_all()
    simulation.settle()
    next_life()
    # The second attempt repeats ten steps, has a restart in place and is suspended.
    simulation.wait(100)
    simulation.edit(suspend=True)
    simulation.agent = AgentReport(
        2, simulation.now, wall_time=told(starting=10, repeated=20, restarting=15, productive=50, secondsSince=5)
    )
    simulation.facts = replace(simulation.facts, agent=None)
    simulation.settle()
    for index in (0, 1):
        simulation.end(index, 143, left(index, 143, starting=10, repeated=20, restarting=15, productive=53))
    simulation.settle()
    simulation.pods = {name: pod.last_view() for name, pod in simulation.pods.items()}  # as the informer keeps them
    simulation.settle()
    assert simulation.attempt.phase is Phase.SUSPENDED
    simulation.pods.clear()
    next_life()
    simulation.wait(500)
    simulation.edit(suspend=False)
    simulation.settle()
    after = {"queued": 100, "starting": 40, "productive": 223, "saving": 10, "repeated": 20, "restarting": 115}
    assert seconds(simulation) == {**after, "suspended": 502}


def test_it_is_written_with_the_progress_and_never_alone() -> None:
    simulation = trained()
    tell(simulation, 40, starting=10, productive=25, secondsSince=5)
    count = len(simulation.writes)
    simulation.wait(30)
    progress = read_as(ToldProgress, {"source": "Script", "step": 7, "secondsSinceUpdate": 0})
    simulation.agent = AgentReport(
        1, simulation.now, wall_time=told(starting=10, productive=55, secondsSince=5), progress=progress
    )
    simulation.settle()
    assert len(simulation.writes) == count + 1
    assert seconds(simulation) == {"queued": 100, "starting": 30, "productive": 55}
    assert goodput(simulation).until == timestamp(simulation.now - timedelta(seconds=5))


def test_a_hang_is_one_until_it_is_known_and_a_result_ends_the_account() -> None:
    simulation = trained()
    simulation.wait(150)
    for index in (0, 1):
        told_last = told(starting=20, productive=70, secondsSince=60).model_dump(by_alias=True)
        simulation.end(index, 1, agent_says(index, 1, 1, "NcclTimeout", wallTime=told_last))
    simulation.settle()
    assert seconds(simulation) == {"queued": 100, "starting": 40, "productive": 70, "hung": 60}
    simulation.wait(30)
    simulation.settle()
    simulation.wait(30)
    simulation.remove()
    simulation.settle()
    simulation.run_all()
    simulation.settle()
    simulation.wait(20)
    for index in (0, 1):
        simulation.end(
            index,
            0,
            agent_says(index, None, 0, "Completed", wallTime=told(starting=4, productive=16).model_dump(by_alias=True)),
        )
    simulation.settle()
    assert simulation.attempt.phase is Phase.ENDED
    after = seconds(simulation)
    assert after == {"queued": 100, "starting": 40, "productive": 86, "hung": 60, "restarting": 64}
    simulation.wait(1000)
    simulation.settle()
    assert seconds(simulation) == after


def test_of_ranks_that_tell_no_step_nothing_is_guessed_and_another_run_begins_at_zero() -> None:
    simulation = trained()
    simulation.wait(300)
    for index in (0, 1):
        simulation.end(index)
    simulation.settle()
    assert seconds(simulation) == {"queued": 100, "starting": 20, "unobserved": 300}
    assert goodput(simulation).percent is None
    simulation.wait(50)
    simulation.edit(runId="again")
    simulation.settle()
    assert seconds(simulation) == {}


@pytest.mark.parametrize(
    "said", [None, 3, {}, {"productive": -1}, {"productive": float("nan")}, {"productive": "1e999"}]
)
def test_what_is_no_wall_time_is_none(said: Any) -> None:
    assert read_as(AgentWallTime, said) is None
