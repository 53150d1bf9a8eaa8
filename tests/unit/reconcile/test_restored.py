"""A finished job that comes back from a backup: its metadata and spec, without its status."""

import json
from typing import Any

import pytest

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import ANNOTATION_ENDED_RUN
from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.reconcile.actions import MarkEndedRun
from tests.unit.reconcile.simulation import Simulation, agent_says, job


def finished(exit_code: int = 0, **spec: Any) -> Simulation:
    simulation = Simulation(job(**spec)).train()
    end(simulation, exit_code)
    return simulation


def end(simulation: Simulation, exit_code: int = 0) -> None:
    simulation.end(0)
    simulation.end(1, exit_code, agent_says(1, 1, exit_code) if exit_code else "")
    simulation.settle()
    assert simulation.run.completion_time is not None


def restored(simulation: Simulation, *, annotation: str | None = None, **metadata: str) -> Simulation:
    """Return the job as a backup brings it back; `annotation` is what somebody has made of the operator's."""
    annotations = simulation.job.metadata.annotations
    if annotation is not None:
        annotations = {ANNOTATION_ENDED_RUN: annotation}
    given = {"name": "pretrain", "namespace": "ml", "uid": "job-2", "generation": 1, **metadata}
    spec = simulation.job.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    body = {"metadata": {**given, "annotations": {**annotations, "theirs": "any"}}, "spec": spec}
    return Simulation(DeepSpeedJob.model_validate(body), simulation.now)


def begins(simulation: Simulation) -> bool:
    simulation.settle()
    return bool(simulation.pods)


def test_the_annotation_is_written_once_after_the_result_and_again_where_it_is_missing() -> None:
    simulation = finished()
    assert simulation.writes[-2:] == ["status", "annotation"]
    assert json.loads(simulation.job.metadata.annotations[ANNOTATION_ENDED_RUN]) == {
        "job": "pretrain", "runId": "", "outcome": "Complete", "time": simulation.run.completion_time,
    }  # fmt: skip
    whole = simulation.job
    simulation.job = whole.model_copy(update={"metadata": whole.metadata.model_copy(update={"annotations": {}})})
    simulation.settle()
    assert simulation.job == whole
    assert simulation.writes.count("annotation") == 2


def test_pods_that_still_run_are_ended_before_the_annotation_is_written() -> None:
    simulation = Simulation(job()).train()
    simulation.end(0, 1, agent_says(0, 0, 1))
    simulation.wait(60)
    simulation.settle()
    assert simulation.writes[-3:] == ["status", "delete pretrain-1-1", "annotation"]


@pytest.mark.parametrize(
    ("exit_code", "state", "kind", "words"),
    [
        (0, State.COMPLETE, ConditionType.COMPLETE, "run '' was Complete at 2026-01-01T00:00:00Z:"),
        (7, State.FAILED, ConditionType.FAILED, "run '' was Failed at 2026-01-01T00:00:00Z (RankFailed):"),
    ],
)
def test_a_restored_job_says_how_its_run_ended_and_creates_nothing(
    exit_code: int, state: State, kind: ConditionType, words: str
) -> None:
    simulation = restored(finished(exit_code), namespace="elsewhere")
    simulation.settle()
    assert (simulation.writes, simulation.job.status.state) == (["status"], state)
    assert (simulation.objects, simulation.tried, simulation.judgements) == ({}, [], 0)
    told = simulation.condition(kind)
    assert (told.status, told.reason) == ("True", "Restored")
    assert words in told.message
    assert "Set a new spec.runId" in told.message
    assert "kubectl annotate dsj pretrain deepspeed-operator.dev/ended-run-" in told.message
    assert simulation.condition(ConditionType.ACCEPTED).status == "True"
    assert [event.reason for event in simulation.events] == ["Restored"]
    simulation.wait(86_400)
    simulation.edit(suspend=True)
    simulation.settle()
    assert simulation.job.status.state is state
    assert simulation.job.status.observed_generation == 2


def test_a_restored_job_runs_again_as_another_run_or_without_its_annotation() -> None:
    simulation = restored(finished())
    simulation.settle()
    simulation.edit(runId="again")
    assert begins(simulation)
    simulation.run_all()
    end(simulation)
    ended = simulation.job.ended_run
    assert ended is not None
    assert (ended.run_id, simulation.job.status.state) == ("again", State.COMPLETE)
    unmarked = restored(finished())
    unmarked.settle()
    metadata = unmarked.job.metadata.model_copy(update={"annotations": {}})
    unmarked.job = unmarked.job.model_copy(update={"metadata": metadata})
    assert begins(unmarked)


def test_a_restored_job_whose_other_run_is_refused_says_its_result_again_once_spec_asks_for_it() -> None:
    simulation = restored(finished())
    config = simulation.job.spec.ds_config
    simulation.edit(runId="b", dsConfig={"train_batch_size": 3, "train_micro_batch_size_per_gpu": 2})
    simulation.settle()
    assert simulation.job.status.state is State.INVALID
    simulation.edit(runId="", dsConfig=config)
    simulation.settle()
    assert simulation.job.status.state is State.COMPLETE
    assert simulation.job.status.findings == []
    assert simulation.condition(ConditionType.ACCEPTED).status == "True"


def test_the_yaml_of_a_finished_job_under_another_name_is_another_job() -> None:
    copy = restored(finished(), name="other", uid="job-3")
    copy.step()
    copy.settle()
    assert copy.attempt.number == 1
    assert copy.job.status.state is State.STARTING


@pytest.mark.parametrize(
    "annotation",
    ["", "Complete", "{}", '{"job": "pretrain", "runId": "", "outcome": "Running", "time": "now"}', "1" * 2000],
)
def test_an_annotation_that_the_operator_did_not_write_keeps_no_job_from_running(annotation: str) -> None:
    assert begins(restored(finished(), annotation=annotation))


def test_a_run_that_had_not_ended_begins_again_whatever_run_has_ended_before() -> None:
    simulation = finished(runId="a")
    simulation.edit(runId="b")
    simulation.settle()
    assert begins(restored(simulation))
    simulation.run_all()
    simulation.settle()
    simulation.edit(runId="a")  # the annotation says that it has ended, as it had
    simulation.settle()
    assert simulation.run.id == "a"
    assert not simulation.job.metadata.annotations
    assert simulation.writes.count("annotation") == 2
    assert begins(restored(simulation))


def test_a_job_that_was_restored_with_its_status_gets_no_write() -> None:
    simulation = finished()
    metadata = simulation.job.metadata.model_copy(update={"uid": "job-2"})
    with_status = Simulation(simulation.job.model_copy(update={"metadata": metadata}), simulation.now)
    with_status.settle()
    assert with_status.writes == []


def test_a_job_of_another_controller_gets_no_annotation() -> None:
    simulation = finished()
    spec = simulation.job.spec.model_copy(update={"managed_by": "example.com/other"})
    metadata = simulation.job.metadata.model_copy(update={"annotations": {}})
    simulation.job = simulation.job.model_copy(update={"spec": spec, "metadata": metadata})
    assert not any(isinstance(action, MarkEndedRun) for action in simulation.outcome().actions)
