"""What kubectl get shows of the steps: as they are told, once a minute at most, and never for more than it is."""

import json
from datetime import timedelta
from typing import Any

import pytest

from deepspeed_operator.api.plan_status import PlanStatus
from deepspeed_operator.api.progress import Progress, ProgressSource
from deepspeed_operator.api.status import State
from deepspeed_operator.reconcile.observe.observed import AgentReport
from deepspeed_operator.reconcile.observe.pods import moment
from deepspeed_operator.reconcile.observe.read_as import read_as
from deepspeed_operator.reconcile.observe.told_progress import ToldProgress
from tests.unit.reconcile.simulation import Simulation, agent_says, job

SAID: dict[str, Any] = {
    "source": "KubeflowCallback",
    "step": 480,
    "totalSteps": 1000,
    "secondsLeft": 1040.0,
    "secondsSinceUpdate": 1.0,
    "loss": "nan",
    "learningRate": 1e-05,
    "samplesPerSecond": 16.0,
    "tokensPerSecond": None,
    "stepSeconds": {"median": 2.0, "p95": 2.5},
}


def told(**fields: Any) -> ToldProgress:
    made = read_as(ToldProgress, {**SAID, **fields})
    assert made is not None
    return made


def running(**spec: Any) -> Simulation:
    """A job whose ranks run, and whose agent answers, but tells nothing of progress yet."""
    simulation = Simulation(job(**spec))
    simulation.agent = AgentReport(1, simulation.now)
    return simulation.train()


def read(simulation: Simulation, told: ToldProgress | None, seconds: float = 30) -> Progress | None:
    """Let time pass until the agent is asked again, and says this; None: nothing."""
    simulation.agent = AgentReport(simulation.attempt.number, simulation.now, progress=told)
    simulation.wait(seconds)
    simulation.settle()
    return simulation.job.status.progress


def known(simulation: Simulation, told: ToldProgress | None, seconds: float = 61) -> Progress:
    progress = read(simulation, told, seconds)
    assert progress is not None
    return progress


def test_status_says_how_far_the_run_is_and_when_it_will_be_done() -> None:
    simulation = running(model={"sequenceLength": 1024, "parameters": 10**9})
    progress = known(simulation, told())
    assert (progress.source, progress.step, progress.total_steps) == (ProgressSource.KUBEFLOW_CALLBACK, 480, 1000)
    assert (progress.percent, progress.summary, progress.stale) == (48, "48%", None)
    assert progress.eta is not None
    assert progress.last_update_time is not None
    assert moment(progress.eta) - simulation.now == timedelta(seconds=1040)
    assert simulation.now - moment(progress.last_update_time) == timedelta(seconds=1)
    assert (progress.loss, progress.learning_rate) == ("nan", 1e-05)
    assert progress.tokens_per_second == 16 * 1024


def test_the_mfu_of_now_is_that_of_the_measured_steps_for_what_a_step_takes_now() -> None:
    simulation = running()
    plan = PlanStatus(measured_step_seconds=1.0, mfu_percent=40.0)
    simulation.job = simulation.job.model_copy(
        update={"status": simulation.job.status.model_copy(update={"plan": plan})}
    )
    assert known(simulation, told()).mfu_percent == 20
    assert known(simulation, told(step=481, stepSeconds=None)).mfu_percent is None
    much_faster = {"median": 0.01, "p95": 0.01}  # the first steps were compiled, say
    assert known(simulation, told(step=482, stepSeconds=much_faster)).mfu_percent is None, "the server would refuse it"


def test_where_nobody_tells_how_many_steps_there_are_nothing_is_guessed() -> None:
    progress = known(running(), told(totalSteps=None, secondsLeft=None, samplesPerSecond=None))
    assert (progress.step, progress.percent, progress.summary, progress.eta) == (480, None, None, None)
    assert progress.tokens_per_second is None


def test_the_first_step_is_told_at_once_and_then_once_a_minute() -> None:
    simulation = running()
    writes = len(simulation.writes)
    assert known(simulation, told(step=1), 31).step == 1
    assert known(simulation, told(step=16), 31).step == 1
    assert known(simulation, told(step=31), 31).step == 31
    assert len(simulation.writes) - writes == 2


def test_what_does_not_move_is_written_once() -> None:
    simulation = running()
    known(simulation, told())
    writes = len(simulation.writes)
    known(simulation, told(secondsSinceUpdate=61.6, secondsLeft=979.2), 61)
    assert len(simulation.writes) == writes


def test_what_has_not_moved_for_two_minutes_is_stale_and_says_when_it_did() -> None:
    simulation = running()
    before = known(simulation, told())
    progress = known(simulation, told(secondsSinceUpdate=122, secondsLeft=0), 121)
    assert (progress.summary, progress.stale, progress.eta) == ("48%, stale", True, None)
    assert progress.last_update_time == before.last_update_time
    progress = known(simulation, told(step=481))
    assert (progress.summary, progress.stale) == ("48%", None)


def test_slow_steps_are_not_stale_before_five_of_them() -> None:
    simulation = running()
    slow = {"median": 300.0, "p95": 310.0}
    assert known(simulation, told(secondsSinceUpdate=1500, stepSeconds=slow)).stale is None
    assert known(simulation, told(step=481, secondsSinceUpdate=1600, stepSeconds=slow)).stale is True


def test_checkpoints_come_seldom_and_are_not_stale_between_two() -> None:
    saved = {"source": "Checkpoint", "stepSeconds": None, "secondsSinceUpdate": 3000}
    assert known(running(), told(**saved)).stale is None


def test_an_agent_that_does_not_answer_makes_it_stale_in_time() -> None:
    simulation = running()
    known(simulation, told())
    simulation.agent = None
    simulation.wait(61)
    simulation.settle()
    progress = simulation.job.status.progress
    assert progress is not None
    assert progress.stale is None
    simulation.wait(200)
    simulation.settle()
    progress = simulation.job.status.progress
    assert progress is not None
    assert (progress.step, progress.stale) == (480, True)


def test_ranks_that_start_again_make_it_stale_until_their_first_step() -> None:
    simulation = running()
    known(simulation, told())
    assert known(simulation, None).summary == "48%, stale"
    assert known(simulation, told(step=400, secondsLeft=None)).summary == "40%"


def test_between_two_attempts_the_last_is_kept_and_stale() -> None:
    simulation = running(failurePolicy={})
    known(simulation, told())
    for index in range(2):
        simulation.end(index, exit_code=137, message=agent_says(1, 1, None, signal=9))
    simulation.settle()
    assert simulation.job.status.state is State.RESTARTING
    progress = simulation.job.status.progress
    assert progress is not None
    assert (progress.step, progress.summary, progress.eta) == (480, "48%, stale", None)


def test_a_run_that_is_complete_is_not_said_to_have_come_less_far() -> None:
    simulation = running()
    known(simulation, told())
    simulation.end(0)
    simulation.end(1)
    simulation.settle()
    assert simulation.job.status.state is State.COMPLETE
    assert simulation.job.status.progress is None


def test_a_run_that_has_ended_keeps_what_its_agent_has_left() -> None:
    simulation = running()
    known(simulation, told())
    left = {**SAID, "step": 1000, "secondsLeft": 0.0, "secondsSinceUpdate": 3.0}
    done = {"protocol": 3, "reason": "Completed", "progress": left}
    for index in range(2):
        simulation.end(index, message=json.dumps(done if index == 0 else {**done, "progress": None}))
    simulation.settle()
    simulation.wait(300)
    simulation.settle()
    assert simulation.job.status.state is State.COMPLETE
    progress, run = simulation.job.status.progress, simulation.job.status.run
    assert progress is not None
    assert (progress.step, progress.summary, progress.stale, progress.eta) == (1000, "100%", None, None)
    assert progress.last_update_time is not None
    assert run is not None
    assert run.completion_time is not None
    assert moment(run.completion_time) - moment(progress.last_update_time) == timedelta(seconds=3)


def test_a_run_that_has_failed_keeps_what_its_agent_has_left() -> None:
    simulation = running()
    known(simulation, told())
    left = {**SAID, "step": 499, "secondsSinceUpdate": 0.5}
    for index in range(2):
        simulation.end(index, exit_code=1, message=agent_says(1, 1, 1, "UserError", progress=left))
    simulation.settle()
    assert simulation.job.status.state is State.FAILED
    progress = simulation.job.status.progress
    assert progress is not None
    assert (progress.step, progress.summary) == (499, "49%, stale")


def failed() -> Simulation:
    simulation = running()
    known(simulation, told())
    read(simulation, told(step=485), 31)
    for index in range(2):
        simulation.end(index, exit_code=1, message=agent_says(1, 1, 1, "UserError"))
    simulation.settle()
    assert simulation.job.status.state is State.FAILED
    return simulation


def test_a_run_that_has_failed_keeps_the_last_that_was_seen() -> None:
    progress = failed().job.status.progress
    assert progress is not None
    assert (progress.step, progress.summary, progress.eta) == (485, "48%, stale", None)


def test_another_run_begins_without_it() -> None:
    simulation = failed()
    simulation.edit(runId="2")
    simulation.settle()
    assert simulation.job.status.progress is None


@pytest.mark.parametrize(
    "said",
    [
        None,
        {},
        {**SAID, "source": "Guess"},
        {**SAID, "step": -1},
        {**SAID, "secondsLeft": float("inf")},
        {**SAID, "loss": "x" * 17},
        {**SAID, "learningRate": float("nan")},
        {**SAID, "stepSeconds": {"median": 1, "p95": 1e300}},
    ],
)
def test_what_status_cannot_hold_is_no_progress(said: object) -> None:
    assert read_as(ToldProgress, said) is None
