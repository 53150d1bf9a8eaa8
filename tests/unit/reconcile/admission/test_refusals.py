"""What keeps a run from beginning, or its pods from being made, and the words in which status says it."""

from datetime import timedelta
from typing import Any

import pytest

from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.reconcile.observe.observed import Facts, SetAside
from tests.unit.reconcile.simulation import Simulation, job
from tests.unit.reconcile.test_life_of_a_job import running, started

ARTICLE = {"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}


def test_a_contradiction_is_refused_with_its_arithmetic_and_nothing_is_created() -> None:
    simulation = started(dsConfig=ARTICLE)
    accepted = simulation.condition(ConditionType.ACCEPTED)
    assert (accepted.status, accepted.reason) == ("False", "InvalidDeepSpeedConfig")
    assert "32 ≠ 4 × 8 × 2" in accepted.message
    assert simulation.writes == ["status"]
    assert [(event.type, event.reason) for event in simulation.events] == [("Warning", "InvalidDeepSpeedConfig")]
    simulation.edit(dsConfig={**ARTICLE, "gradient_accumulation_steps": 4})
    simulation.settle()
    assert simulation.job.status.state is State.STARTING


def test_all_errors_are_listed_at_once_each_with_its_path() -> None:
    simulation = started(dsConfig=ARTICLE, template={"spec": {"restartPolicy": "Always", "hostname": "x"}})
    message = simulation.condition(ConditionType.ACCEPTED).message
    for path in ("spec.dsConfig", "spec.template.spec.restartPolicy", "spec.template.spec.hostname"):
        assert path in message


def test_a_missing_config_map_is_named_and_heals_when_it_appears() -> None:
    simulation = started(dsConfig=None, dsConfigFrom={"configMap": "cfg", "key": "a.json"})
    assert simulation.condition(ConditionType.ACCEPTED).reason == "ConfigNotFound"
    message = simulation.condition(ConditionType.ACCEPTED).message
    assert "there is no ConfigMap cfg in namespace ml" in message
    assert "create it with key a.json" in message
    simulation.config_maps["cfg"] = {"b.json": "{}"}
    simulation.wait(15)
    simulation.settle()
    assert "no key a.json; it has b.json" in simulation.condition(ConditionType.ACCEPTED).message
    simulation.config_maps["cfg"] = {"a.json": "{"}
    simulation.wait(15)
    simulation.settle()
    assert simulation.condition(ConditionType.ACCEPTED).reason == "InvalidDeepSpeedConfig"
    simulation.config_maps["cfg"] = {"a.json": '{"train_micro_batch_size_per_gpu": 1}'}
    simulation.wait(15)
    simulation.settle()
    assert set(simulation.pods) == {"pretrain-1-0", "pretrain-1-1"}


def test_missing_files_are_named_with_all_other_errors_and_heal_when_they_appear() -> None:
    program = {"script": "train.py", "files": {"configMap": "code"}}
    simulation = started(training=program, dsConfig=ARTICLE)
    accepted = simulation.condition(ConditionType.ACCEPTED)
    assert "spec.training.files.configMap: there is no ConfigMap code in namespace ml" in accepted.message
    assert "32 ≠ 4 × 8 × 2" in accepted.message
    simulation.edit(dsConfig={**ARTICLE, "gradient_accumulation_steps": 4})
    simulation.settle()
    assert simulation.condition(ConditionType.ACCEPTED).reason == "FilesNotFound"
    simulation.wait(15)
    simulation.config_maps["code"] = {"train.py": ""}
    simulation.settle()
    assert simulation.job.status.state is State.STARTING
    simulation.run_all()
    simulation.settle()
    del simulation.config_maps["code"]
    simulation.wait(60)
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING


def just_created(**spec: Any) -> Simulation:
    applied = job(**spec)
    created = applied.metadata.model_copy(update={"creation_timestamp": "2026-01-01T00:00:00Z"})
    return Simulation(applied.model_copy(update={"metadata": created}))


def test_an_absent_config_map_is_read_every_second_for_5_seconds_then_every_15_however_often_the_job_changes() -> None:
    simulation = just_created(dsConfig=None, dsConfigFrom={"configMap": "cfg", "key": "a.json"})
    begun = simulation.now
    for second in range(60):
        simulation.edit(runId=f"{second}")
        simulation.settle()
        simulation.wait(1)
    reads = [(at - begun).total_seconds() for at in simulation.config_map_reads]
    assert reads == [0, 1, 2, 3, 4, 19, 34, 49]


@pytest.mark.parametrize("late", [1, 30])
def test_what_is_applied_just_after_the_job_is_waited_for_before_its_absence_is_a_verdict(late: int) -> None:
    simulation = just_created(training={"script": "train.py", "files": {"configMap": "code"}})
    simulation.settle()
    assert simulation.job.status.conditions == []
    simulation.wait(late)
    if late == 1:
        simulation.config_maps["code"] = {"train.py": ""}
    simulation.settle()
    assert simulation.condition(ConditionType.ACCEPTED).reason == ("Accepted" if late == 1 else "FilesNotFound")


def test_a_later_attempt_uses_the_configuration_of_the_run_though_its_source_has_changed() -> None:
    simulation = Simulation(job(dsConfig=None, dsConfigFrom={"configMap": "cfg", "key": "c"}))
    first = '{"train_micro_batch_size_per_gpu": 1}'
    simulation.config_maps["cfg"] = {"c": first}
    simulation.settle()
    simulation.run_all()
    simulation.settle()
    simulation.config_maps["cfg"] = {"c": '{"train_micro_batch_size_per_gpu": 2}'}
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    simulation.wait(60)
    simulation.edit(suspend=False)
    simulation.settle()
    assert simulation.objects["ConfigMap", "pretrain-2-job-1"]["data"]["ds_config.json"] == first


@pytest.mark.parametrize(
    ("containers", "words"),
    [
        ([{"name": "a"}, {"name": "b"}], "none named trainer"),
        ([{"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": 4}}}], "4 accelerators for the run's 1 ranks"),
    ],
)
def test_a_template_made_wrong_in_a_run_makes_no_pods_until_it_is_corrected(
    containers: list[dict[str, Any]], words: str
) -> None:
    right = {"spec": {"containers": [{"name": "trainer"}]}}
    simulation = running(template=right)
    simulation.edit(suspend=True, template={"spec": {"containers": containers}})
    simulation.settle()
    simulation.remove()
    simulation.edit(suspend=False)
    simulation.settle()
    assert words in simulation.condition(ConditionType.RUNNING).message
    assert not simulation.pods
    simulation.edit(template=right)
    simulation.settle()
    assert set(simulation.pods) == {"pretrain-2-0", "pretrain-2-1"}


@pytest.mark.parametrize(
    ("invalid", "reason", "again_after"), [(True, "TemplateRejected", 300), (False, "PodsRefused", 30)]
)
def test_a_pod_that_the_api_server_refuses_on_trial_is_never_created(
    invalid: bool, reason: str, again_after: float
) -> None:
    simulation = Simulation(job(), trial_refusal=("spec.containers[0].ports: Required value", invalid))
    simulation.settle()
    accepted = simulation.condition(ConditionType.ACCEPTED)
    assert (accepted.status, accepted.reason) == ("False", reason)
    assert "spec.containers[0].ports: Required value. Correct spec.template" in accepted.message
    assert not simulation.pods
    simulation.trial_refusal = None
    simulation.wait(again_after)
    simulation.settle()
    assert len(simulation.pods) == 2


def test_a_job_for_which_a_quota_has_no_room_is_accepted_and_waits() -> None:
    simulation = Simulation(job(), trial_refusal=("exceeded quota: gpus", False), trial_quota=True)
    simulation.settle()
    assert simulation.job.status.state is State.STARTING
    assert simulation.condition(ConditionType.ACCEPTED).status == "True"
    assert simulation.condition(ConditionType.RECONCILING).reason == "PodsRefused"
    assert simulation.condition(ConditionType.STALLED).status == "False"
    assert "No pod was created: exceeded quota: gpus. Make room" in simulation.condition(ConditionType.READY).message
    assert not simulation.pods
    simulation.wait(20)
    simulation.settle()
    assert simulation.writes.count("status") == 1
    simulation.trial_refusal, simulation.trial_quota = None, False
    simulation.wait(10)
    simulation.settle()
    assert len(simulation.pods) == 2
    assert simulation.condition(ConditionType.READY).reason == "Starting"


def test_what_a_policy_refuses_is_not_for_the_template_to_correct() -> None:
    words = "ValidatingAdmissionPolicy 'a' with binding 'a' denied request: this namespace has no jobs"
    simulation = Simulation(job(), trial_refusal=(words, False))
    simulation.settle()
    assert "has no jobs. Do as that policy says, or ask" in simulation.condition(ConditionType.ACCEPTED).message


def test_a_refusal_on_the_way_keeps_no_half_gang_and_is_tried_again() -> None:
    simulation = Simulation(job(), refuse_pods="exceeded quota: gpus")
    simulation.settle()
    running_condition = simulation.condition(ConditionType.RUNNING)
    assert running_condition.reason == "PodsRefused"
    assert "exceeded quota: gpus. Make room in the quota, or correct" in running_condition.message
    assert all(pod.deleted_at for pod in simulation.pods.values())
    simulation.end(0, 137)
    simulation.settle()
    assert simulation.job.status.state is State.STARTING, "that its deletion killed a pod is no result"
    simulation.remove()
    simulation.refuse_pods = None
    simulation.wait(10)
    simulation.settle()
    assert set(simulation.pods) == {"pretrain-1-0", "pretrain-1-1"}
    assert not any(pod.deleted_at for pod in simulation.pods.values())
    assert simulation.condition(ConditionType.RUNNING).reason == "Starting"


def test_a_refusal_that_goes_on_is_written_once_though_it_is_tried_again_and_the_operator_restarts() -> None:
    simulation = Simulation(job(), refuse_pods="exceeded quota: gpus")
    simulation.settle()
    simulation.remove()
    written = simulation.writes.count("status")
    simulation.wait(10)
    simulation.step()
    simulation.facts = Facts()
    simulation.remove(*simulation.pods)
    simulation.step()
    assert simulation.writes.count("status") == written


def test_a_dangerous_variable_is_in_status_and_one_event_but_advice_is_no_event() -> None:
    simulation = started(network={"env": {"NCCL_IB_GID_INDEX": "3", "NCCL_BUFFSIZE": "1"}})
    status = simulation.job.status
    assert {finding.path: finding.level for finding in status.findings} == {
        "spec.network.env.NCCL_IB_GID_INDEX": "warning",
        "spec.network.env.NCCL_BUFFSIZE": "advice",
    }
    assert [event.message[:9] for event in simulation.events if event.reason == "ConfigurationWarnings"] == [
        "1 warning"
    ]
    assert status.warnings == 1
    told = "1 warning: kubectl describe and dsjob validate show what to write."
    assert simulation.condition(ConditionType.ACCEPTED).message.endswith(told)
    advised = started(network={"env": {"NCCL_BUFFSIZE": "1"}})
    assert advised.job.status.findings
    assert advised.job.status.warnings is None
    assert "warning" not in advised.condition(ConditionType.ACCEPTED).message
    assert not [event for event in advised.events if event.reason == "ConfigurationWarnings"]


def test_a_job_that_costs_too_much_to_judge_is_set_aside_and_tried_again() -> None:
    simulation = Simulation(job())
    why = "judging it takes more than 10 s of CPU time"
    simulation.set_aside = SetAside(why, simulation.now + timedelta(seconds=30))
    outcome = simulation.settle()
    assert simulation.writes == ["status"]
    accepted = simulation.condition(ConditionType.ACCEPTED)
    assert (accepted.status, accepted.reason) == ("False", "Quarantined")
    assert f"{why}. It is tried again at 2026-01-01T00:00:30Z. Make spec.dsConfig" in accepted.message
    assert outcome.check_at == simulation.set_aside.until
    simulation.set_aside = None
    simulation.wait(30)
    simulation.train()
