"""What rank 0's agent tells of checkpoints: in status, in an event where it mended `latest`, and in what follows."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from deepspeed_operator.api.status import State
from deepspeed_operator.job.ports import ports
from deepspeed_operator.job.world import world_of
from deepspeed_operator.reconcile.runtime.agent_answer import report_of
from deepspeed_operator.render.content import launch_document
from tests.unit.reconcile.runtime.test_agent_answer import STATE
from tests.unit.reconcile.simulation import Simulation, agent_says, job

SAVED: dict[str, Any] = {
    "path": "/data/run",
    "tag": "global_step40",
    "step": 40,
    "time": int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()),
    "sizeBytes": 1000,
    "seconds": 3,
    "progressed": True,
    "repaired": None,
}
MENDED = {"torn": "global_step50", "missing": "the model states of rank 0 are missing", "tag": "global_step40"}


PROGRESS: dict[str, Any] = {"secondsSinceUpdate": 1.0}


def answer(simulation: Simulation, *, beside: dict[str, Any] | None = None, **fields: Any) -> None:
    state: dict[str, Any] = {
        **STATE,
        "warnings": [],
        "deepspeed": None,
        "checkpoint": {**SAVED, **fields},
        **(beside or {}),
    }
    simulation.agent = report_of(
        state, "job-1", simulation.attempt.number if simulation.job.status.attempt else 1, simulation.now
    )


def training(**spec: Any) -> Simulation:
    simulation = Simulation(job(**spec))
    answer(simulation)
    return simulation.train()


def test_status_has_the_newest_complete_one() -> None:
    checkpoint = training().job.status.checkpoint
    assert checkpoint is not None
    assert checkpoint.model_dump(by_alias=True, exclude_none=True) == {
        "path": "/data/run",
        "tag": "global_step40",
        "step": 40,
        "time": "2026-01-01T00:00:00Z",
        "sizeBytes": 1000,
        "seconds": 3,
    }


def test_newer_ones_are_written_once_a_minute_at_most() -> None:
    simulation = training()
    simulation.wait(61)
    steps = list[int | None]()
    for step in range(41, 47):
        answer(simulation, step=step)
        simulation.wait(30)
        simulation.settle()
        assert simulation.job.status.checkpoint is not None
        steps.append(simulation.job.status.checkpoint.step)
    assert steps[-1] in {45, 46}
    assert len(set(steps)) < len(steps)


@pytest.mark.parametrize(("tag", "words"), [("global_step40", "it names global_step40 now"), (None, "latest.torn now")])
def test_a_mended_latest_is_told_once(tag: str | None, words: str) -> None:
    simulation = training()
    for _ in range(3):
        answer(simulation, repaired={**MENDED, "tag": tag})
        simulation.wait(31)
        simulation.settle()
    (event,) = [each for each in simulation.events if each.reason == "CheckpointRepaired"]
    assert "/data/run/latest named global_step50, which is not complete: the model states of rank 0" in event.message
    assert words in event.message
    assert simulation.job.status.checkpoint is not None
    assert simulation.job.status.checkpoint.message is not None


@pytest.mark.parametrize(
    "fields",
    [{"path": 7}, {"path": "x" * 5000, "tag": "caf\udce9" * 500}, {"time": 1e300}, {"step": -1}, {"repaired": 7}],
)
def test_whatever_answers_status_can_be_written(fields: dict[str, Any]) -> None:
    simulation = Simulation(job())
    answer(simulation, **fields)
    simulation.train()
    json.dumps(simulation.job.status.model_dump(mode="json"), ensure_ascii=False).encode()
    assert simulation.job.status.state is State.RUNNING


@pytest.mark.parametrize(
    ("source", "step", "told"),
    [
        ("DeepSpeedEngine", 3, True),
        ("TrainerLog", 39, True),
        ("DeepSpeedEngine", 41, False),
        ("ProgressBar", 3, False),
    ],
)
def test_ranks_that_begin_below_the_newest_checkpoint_are_told_once(source: str, step: int, told: bool) -> None:
    simulation = training()
    for further in range(3):
        progress = {**PROGRESS, "source": source, "step": step + (further if step < 39 else 0)}
        answer(simulation, beganWith=40, beside={"progress": progress})
        simulation.wait(61)
        simulation.settle()
    events = [each.message for each in simulation.events if each.reason == "RestartedFromZero"]
    assert len(events) == told
    assert ["restarted-from-zero"] * told == [each.code for each in simulation.job.status.findings]
    answer(simulation, beganWith=40, beside={"progress": {**PROGRESS, "source": source, "step": 60}})
    simulation.wait(61)
    simulation.settle()
    assert simulation.job.status.findings == [], "it has caught up"


def fails(simulation: Simulation, **checkpoint: Any) -> None:
    said = agent_says(0, 0, 1, "UserError", checkpoint={**SAVED, **checkpoint})
    for index in (0, 1):
        simulation.end(index, 1, said)
    simulation.settle()


@pytest.mark.parametrize(("progressed", "state"), [(True, State.RESTARTING), (False, State.FAILED)])
def test_a_program_that_failed_begins_again_where_it_has_saved_something_new(progressed: bool, state: State) -> None:
    simulation = training(failurePolicy={"restartInPlace": False})
    fails(simulation, step=60, progressed=progressed)
    assert simulation.job.status.state is state
    assert simulation.job.status.checkpoint is not None
    assert simulation.job.status.checkpoint.step == 60, "by its last words"


def test_what_an_attempt_found_the_next_one_is_told() -> None:
    made = training().job
    text = launch_document(made, 2, world_of(made.spec), ports=ports("job-1", 2), config_path=None, deepspeed=None)
    assert json.loads(text)["checkpoint"]["path"] == "/data/run"


@pytest.mark.parametrize("words", ["saved at step 60, 3 s before the end", "did not save"])
def test_whether_ranks_saved_when_they_were_told_to_end_is_in_the_attempt(words: str) -> None:
    simulation = training()
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.end(0, 143, agent_says(0, None, None, "Terminated", savedAtEnd=words))
    simulation.end(1, 143, agent_says(0, None, None, "Terminated"))
    simulation.settle()
    for index in (0, 1):
        simulation.pods[simulation.pod(index).name] = simulation.pod(index).last_view()
    simulation.settle()
    assert [each.saved_at_end for each in simulation.job.status.attempts] == [words]
