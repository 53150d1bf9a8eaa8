"""What goes wrong before and after a run begins, and the words in which status says it."""

from typing import Any

import pytest

from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.reconcile.observed import Facts
from tests.unit.reconcile.simulation import Simulation, agent_says, job
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
    assert simulation.objects["ConfigMap", "pretrain-2"]["data"]["ds_config.json"] == first


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


@pytest.mark.parametrize("last_words", ["ValueError: no data", "ValueError: no data."])
def test_what_to_do_next_follows_the_cause_after_one_full_stop(last_words: str) -> None:
    simulation = running()
    simulation.end(0, 1, agent_says(0, 0, 1, signature=last_words))
    simulation.end(1, 1, agent_says(0, 0, 1, signature=last_words))
    simulation.settle()
    assert (
        "ValueError: no data. Correct the cause, then run again" in simulation.condition(ConditionType.FAILED).message
    )


def test_the_failing_rank_is_named_with_pod_node_code_and_log() -> None:
    simulation = running()
    message = agent_says(1, 1, 7, signature="ValueError: no data")
    simulation.end(1, 7, message)
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING, "its peers may turn out to have failed first"
    simulation.end(0, 7, message)
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.rank, failure.pod, failure.node) == ("RankFailed", 1, "pretrain-1-1", "node1")
    assert failure.exit_code == 7
    assert "ValueError: no data" in failure.message
    assert "last line of the log" in failure.message
    failed = simulation.condition(ConditionType.FAILED)
    assert "rank 1 in pod pretrain-1-1 on node node1 exited with code 7: ValueError: no data" in failed.message
    assert "last line of the log" not in failed.message


def test_a_silent_death_explains_the_lost_connections_of_its_peers() -> None:
    simulation = running(nodes=3)
    simulation.end(2, 137, "some log line", reason="OOMKilled")
    simulation.end(0, 1, agent_says(0, 0, 1, signature="RuntimeError: Connection reset by peer"))
    simulation.end(1, 1, agent_says(0, 0, 1, signature="RuntimeError: Connection reset by peer"))
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.pod, failure.node) == ("OutOfMemory", "pretrain-1-2", "node2")
    assert failure.signal == 9
    assert "container trainer of pod pretrain-1-2" in failure.message


def test_the_rank_is_named_when_the_agent_survived_its_oom_kill() -> None:
    simulation = running()
    simulation.end(1, 137, agent_says(1, 1, None, signal=9), reason="OOMKilled")
    simulation.end(0, 137, agent_says(1, 1, None, signal=9))
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.rank, failure.pod) == ("OutOfMemory", 1, "pretrain-1-1")


def test_a_gang_whose_peers_do_not_end_is_failed_after_a_while_and_removed() -> None:
    simulation = running()
    simulation.end(1, 7, agent_says(1, 1, 7))
    outcome = simulation.settle()
    assert outcome.check_at is not None
    simulation.now = outcome.check_at
    simulation.settle()
    assert simulation.job.status.state is State.FAILED
    assert simulation.pod(0).deleted_at is not None
    assert simulation.pod(1).deleted_at is None


@pytest.mark.parametrize(
    ("fields", "reason", "words"),
    [
        ({"unschedulable": "0/2 nodes are available."}, "Unschedulable", "It starts when a node has room"),
        ({"unschedulable": 'persistentvolumeclaim "data" not found'}, "Unschedulable", "create or correct it"),
        (
            {"waiting_container": "trainer", "waiting_reason": "ErrImagePull", "waiting_message": "not found"},
            "ImagePullFailed",
            "container trainer of pod pretrain-1-1 on node node1 cannot pull its image: not found",
        ),
        (
            {"waiting_container": "trainer", "waiting_reason": "CreateContainerConfigError", "waiting_message": "x"},
            "ContainerCannotStart",
            "CreateContainerConfigError: x",
        ),
    ],
)
def test_what_keeps_a_pod_from_starting_is_said_while_waiting_and_at_the_deadline(
    fields: dict[str, str], reason: str, words: str
) -> None:
    simulation = started(lifecycle={"startupDeadlineSeconds": 60})
    simulation.change(1, node="node1", **fields)
    simulation.settle()
    assert simulation.condition(ConditionType.RUNNING).reason == reason
    assert words in simulation.condition(ConditionType.RUNNING).message
    simulation.wait(60)
    simulation.settle()
    failed, failure = simulation.condition(ConditionType.FAILED), simulation.job.status.failure
    assert (failed.status, failed.reason) == ("True", "StartupDeadlineExceeded")
    assert words in failed.message
    assert failure is not None
    assert (failure.pod, failure.node) == ("pretrain-1-1", "node1")


def test_the_agents_of_a_gang_whose_containers_run_get_to_say_first_who_is_missing() -> None:
    simulation = started(lifecycle={"startupDeadlineSeconds": 60})
    for index in (0, 1):
        simulation.change(index, phase="Running", node="n", address=f"10.0.0.{index + 1}")
    simulation.wait(60)
    simulation.settle()
    assert simulation.job.status.state is State.STARTING
    simulation.end(0, 1, agent_says(0, None, 1, "HostNotResolved", signature="pretrain-1-1.pretrain"))
    simulation.end(1, 1, agent_says(0, None, 1, "HostNotResolved", signature="pretrain-1-1.pretrain"))
    simulation.settle()
    assert simulation.condition(ConditionType.FAILED).reason == "HostNotResolved"


@pytest.mark.parametrize(
    ("exit_code", "reason", "message", "expected", "words"),
    [
        (128, "StartError", 'exec: "python3": executable file not found in $PATH', "PythonNotFound", "has no python3"),
        (128, "StartError", 'exec: "/run.sh": stat /run.sh: no such file', "ContainerCannotStart", "has no /run.sh"),
        (137, "Error", "log", "ContainerKilled", "signal 9"),
        (2, "Error", "usage: entrypoint", "ContainerFailed", "exited with code 2"),
    ],
)
def test_a_container_that_ended_without_the_agents_word_is_explained_by_its_state(
    exit_code: int, reason: str, message: str, expected: str, words: str
) -> None:
    simulation = running(nodes=1)
    simulation.end(0, exit_code, message, reason)
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert failure.reason == expected
    assert words in failure.message
    assert "pod pretrain-1-0 on node node0" in failure.message


def test_an_evicted_pod_is_named_with_the_kubelets_words() -> None:
    simulation = running(nodes=1)
    simulation.change(0, phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert failure.reason == "Evicted"
    assert "low on resource: memory" in failure.message


def test_a_pod_that_its_node_does_not_admit_fails_the_job_though_the_others_wait_for_it() -> None:
    simulation = started()
    simulation.change(0, phase="Running", node="node0", address="10.0.0.1")
    simulation.change(1, phase="Failed", node="node1", reason="UnexpectedAdmissionError", message="no healthy devices")
    simulation.wait(15)
    simulation.settle()
    assert simulation.job.status.failure is not None
    assert simulation.job.status.failure.pod == "pretrain-1-1"
    assert "UnexpectedAdmissionError: no healthy devices" in simulation.job.status.failure.message
    assert simulation.pod(0).deleted_at is not None


def test_a_pod_that_somebody_deletes_fails_the_job_in_those_words() -> None:
    simulation = running()
    said = agent_says(1, None, 143, "Terminated")
    simulation.end(1, 143, said, deleted_at=simulation.now)
    simulation.end(0, 143, said)
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.pod) == ("PodDeleted", "pretrain-1-1")


def test_a_pod_that_vanishes_while_running_is_looked_for_once_and_fails_the_job() -> None:
    simulation = running()
    simulation.remove("pretrain-1-1")
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.pod) == ("PodDeleted", "pretrain-1-1")
    assert "pod pretrain-1-1" not in simulation.writes[-4:], "it is not created again"


@pytest.mark.parametrize(
    "forged",
    [
        '{"protocol": 1, "reason": ""}',
        '{"protocol": 1, "reason": "A b"}',
        '{"protocol": 1, "reason": "A", "rank": 1e400}',
        '{"protocol": 1, "reason": "A", "exitCode": 99999999999999999999}',
        '{"protocol": 2, "reason": "A"}',
        "[" * 5000,
        "null",
    ],
)
def test_a_termination_message_that_status_could_not_hold_is_taken_for_log(forged: str) -> None:
    simulation = running(nodes=1)
    simulation.end(0, 3, forged)
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.exit_code) == ("ContainerFailed", 3)


def test_a_deleted_pod_is_named_though_it_is_gone_before_its_peers_have_ended() -> None:
    simulation = running()
    said = agent_says(1, None, 143, "Terminated", node="node1")
    simulation.remove("pretrain-1-1")
    simulation.end(0, 143, said)
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.pod, failure.node) == ("PodDeleted", "pretrain-1-1", "node1")


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
    advised = started(dsConfig={**ARTICLE, "train_batch_size": 64, "optimizer": {"type": "AdamW", "params": {}}})
    assert advised.job.status.findings
    assert not [event for event in advised.events if event.reason == "ConfigurationWarnings"]
