"""What is changed in spec while a run goes on without it is said, once, for as long as it is so."""

import pytest

from deepspeed_operator.api.status import State
from tests.unit.reconcile.simulation import Simulation, job
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
