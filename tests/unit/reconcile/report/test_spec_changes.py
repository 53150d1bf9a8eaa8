"""What is changed in spec while a run goes on without it is said, once, for as long as it is so."""

from typing import Any

import pytest

from deepspeed_operator.api.status import MAX_FINDINGS, ConditionType, State
from deepspeed_operator.reconcile.observe.observed import Facts
from tests.unit.reconcile.simulation import Simulation, job
from tests.unit.reconcile.suspension import suspend_and_resume
from tests.unit.reconcile.test_life_of_a_job import running

BEFORE = {"spec": {"containers": [{"name": "trainer"}]}}
AFTER = {"spec": {"containers": [{"name": "trainer", "env": [{"name": "A", "value": "b"}]}]}}


def said(simulation: Simulation) -> list[str]:
    return [finding.path for finding in simulation.job.status.findings]


def announced(simulation: Simulation) -> list[str]:
    return [event.message for event in simulation.events if event.reason == "ChangeNotApplied"]


def test_an_inline_configuration_changed_in_a_run_is_a_finding() -> None:
    simulation = running()
    simulation.edit(dsConfig={"train_micro_batch_size_per_gpu": 7})
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    assert said(simulation) == ["spec.dsConfig"]
    assert len(announced(simulation)) == 1
    simulation.edit(dsConfig=job().spec.ds_config)
    simulation.settle()
    assert said(simulation) == []


@pytest.mark.parametrize(("before", "after"), [(None, job().spec.ds_config), (job().spec.ds_config, None)])
def test_a_configuration_that_comes_or_goes_in_a_run_is_a_finding(
    before: dict[str, object] | None, after: dict[str, object] | None
) -> None:
    simulation = running(dsConfig=before)
    simulation.edit(dsConfig=after)
    simulation.settle()
    assert said(simulation) == ["spec.dsConfig"]
    assert len(announced(simulation)) == 1


JUDGED = {"model": {"parameters": 10**9}, "gpuMemory": "80Gi", "admission": "RequireFit"}


@pytest.mark.parametrize("field", JUDGED)
@pytest.mark.parametrize("when", ["running", "suspended"])
def test_what_a_run_was_judged_by_is_a_finding_and_one_event_once_it_is_changed(field: str, when: str) -> None:
    simulation = running()
    if when == "suspended":
        simulation.edit(suspend=True)
        simulation.settle()
        simulation.remove()
        simulation.settle()
    simulation.edit(**{field: JUDGED[field]})
    simulation.settle()
    simulation.wait(3600)
    simulation.settle()
    assert said(simulation) == [f"spec.{field}"]
    assert len(announced(simulation)) == 1
    assert "Change spec.runId" in announced(simulation)[0]


def test_a_next_attempt_keeps_what_its_run_was_judged_by_and_the_next_run_takes_what_was_changed() -> None:
    simulation = running()
    simulation.edit(**JUDGED)
    simulation.settle()
    suspend_and_resume(simulation)
    simulation.train()
    changed = [f"spec.{field}" for field in JUDGED]
    assert [path for path in said(simulation) if path in changed] == changed
    assert len(announced(simulation)) == len(changed)
    simulation.edit(runId="b")
    simulation.settle()
    simulation.remove()
    simulation.train()
    assert not set(said(simulation)) & set(changed)


def test_facts_written_in_another_way_are_no_change() -> None:
    simulation = running(model={"parameters": 10**9})
    simulation.edit(model={"parameters": 10**9, "quantization": "None"})
    simulation.settle()
    assert "spec.model" not in said(simulation)
    assert announced(simulation) == []


def test_of_a_run_that_another_version_of_the_operator_judged_nothing_is_known_to_have_changed() -> None:
    simulation = running()
    run = simulation.run.model_copy(update={"spec_digests": None})
    earlier = simulation.job.status.model_copy(update={"run": run})
    simulation.job = simulation.job.model_copy(update={"status": earlier})
    simulation.edit(admission="RequireFit")
    simulation.settle()
    assert announced(simulation) == []


@pytest.mark.parametrize("before", [BEFORE, None])
def test_a_template_changed_in_a_run_is_a_finding_and_one_event_until_an_attempt_has_it(
    before: dict[str, object] | None,
) -> None:
    simulation = running(template=before)
    assert said(simulation) == []
    simulation.edit(template=AFTER)
    simulation.settle()
    simulation.wait(3600)
    simulation.settle()
    assert said(simulation) == ["spec.template"]
    assert len(announced(simulation)) == 1
    assert "Suspend the job and resume it" in announced(simulation)[0]
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    assert said(simulation) == []
    simulation.edit(suspend=False)
    simulation.settle()
    simulation.run_all()
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    assert said(simulation) == []
    assert len(announced(simulation)) == 1


def test_a_template_that_is_changed_back_is_no_finding() -> None:
    simulation = running(template=BEFORE)
    simulation.edit(template=AFTER)
    simulation.settle()
    simulation.edit(template=BEFORE)
    simulation.settle()
    assert said(simulation) == []


def test_a_template_that_is_corrected_before_its_pods_are_made_is_no_finding() -> None:
    simulation = Simulation(job(template=BEFORE), refuse_pods="exceeded quota: gpus")
    simulation.settle()
    simulation.edit(template=AFTER)
    simulation.settle()
    simulation.remove()
    simulation.refuse_pods = None
    simulation.wait(10)
    simulation.settle()
    assert len(simulation.pods) == 2
    assert announced(simulation) == said(simulation) == []


def test_a_template_changed_together_with_the_run_id_is_that_runs() -> None:
    simulation = running(template=BEFORE)
    simulation.edit(runId="b", template=AFTER)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    assert set(simulation.pods) == {"pretrain-2-0", "pretrain-2-1"}
    assert said(simulation) == []


def test_a_change_is_announced_once_where_status_holds_no_more_findings() -> None:
    simulation = running(network={"env": {f"NCCL_NO_SUCH_{number}": "1" for number in range(60)}})
    assert len(said(simulation)) == MAX_FINDINGS
    simulation.edit(template=AFTER)
    events = [event for _ in range(4) for event in simulation.step().events]
    assert [event.reason for event in events] == ["ChangeNotApplied"]
    assert "spec.template" in said(simulation)


def finished(exit_code: int = 0, **spec: Any) -> Simulation:
    simulation = running(**spec)
    simulation.end(0)
    simulation.end(1, exit_code)
    simulation.settle()
    assert simulation.run.completion_time is not None
    return simulation


@pytest.mark.parametrize("exit_code", [0, 7])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("training", {"script": "better.py"}),
        ("dsConfig", {"train_micro_batch_size_per_gpu": 7}),
        ("dsConfigFrom", {"configMap": "cfg", "key": "c"}),
        ("template", AFTER),
        ("nodes", 3),
        ("gpuMemory", "80Gi"),
    ],
)
def test_a_changed_spec_of_a_finished_job_is_said_in_one_write(field: str, value: Any, exit_code: int) -> None:
    simulation = finished(exit_code)
    before = simulation.condition(ConditionType.READY)
    writes = len(simulation.writes)
    simulation.edit(**{field: value}, **({"dsConfig": None} if field == "dsConfigFrom" else {}))
    simulation.settle()
    assert simulation.writes[writes:] == ["status"]
    assert said(simulation) == [f"spec.{field}"]
    words = f"{before.message} spec.{field} changed since this run: set a new spec.runId to run it."
    assert simulation.condition(ConditionType.READY).message == words
    assert [each.status for each in simulation.job.status.conditions if each.type == "Ready"] == [before.status]
    assert len(announced(simulation)) == 1
    simulation.facts = Facts()
    assert simulation.outcome().status == simulation.job.status, "an operator that has just begun says the same"


def test_a_finished_job_whose_change_is_taken_back_or_run_says_nothing_of_it() -> None:
    simulation = finished()
    before = simulation.condition(ConditionType.READY)
    simulation.edit(image="better:1")
    simulation.settle()
    simulation.edit(image=None)
    simulation.settle()
    assert said(simulation) == []
    assert simulation.condition(ConditionType.READY).message == before.message
    simulation.edit(image="better:1", runId="b")
    simulation.remove(*simulation.pods)
    simulation.settle()
    assert said(simulation) == []
    assert simulation.job.status.state is State.STARTING


@pytest.mark.parametrize(
    "change", [{"suspend": True}, {"lifecycle": {"startupDeadlineSeconds": 60}}, {"admission": "Always"}]
)
def test_what_makes_no_other_run_is_no_change_of_a_finished_job(change: dict[str, Any]) -> None:
    simulation = finished()
    simulation.edit(**change)
    simulation.settle()
    assert said(simulation) == announced(simulation) == []


def test_what_was_changed_during_a_run_is_said_of_its_result() -> None:
    simulation = running()
    simulation.edit(template=AFTER)
    simulation.settle()
    simulation.end(0)
    simulation.end(1)
    simulation.settle()
    assert "spec.template changed since this run" in simulation.condition(ConditionType.READY).message
