"""From apply to result: what is made in which order, and what status says meanwhile."""

from dataclasses import replace
from datetime import timedelta

import pytest

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.reconcile.observe.observed import AgentReport
from tests.unit.reconcile.simulation import Simulation, agent_says, job

REFUSED = {"train_batch_size": 3, "train_micro_batch_size_per_gpu": 2}


def started(**spec: object) -> Simulation:
    simulation = Simulation(job(**spec))
    simulation.settle()
    return simulation


def running(**spec: object) -> Simulation:
    return Simulation(job(**spec)).train()


def test_an_accepted_job_gets_its_children_after_the_attempt_is_recorded() -> None:
    simulation = started()
    assert simulation.writes == [
        "status", "Service/pretrain", "ConfigMap/pretrain-1-job-1", "Secret/pretrain-1-job-1",
        "pod pretrain-1-0", "pod pretrain-1-1",
    ]  # fmt: skip
    attempt, run = simulation.attempt, simulation.run
    assert (simulation.job.status.state, attempt.number, attempt.phase) == (State.STARTING, 1, Phase.STARTING)
    assert (run.id, run.world.size) == ("", 2)
    assert run.batch is not None
    assert (run.batch.train, run.batch.micro_per_gpu, run.batch.accumulation) == (24, 2, 6)


def test_from_apply_to_running_takes_nodes_plus_seven_writes() -> None:
    simulation = started()
    simulation.change(0, address="10.0.0.1", phase="Running")
    simulation.settle()
    simulation.run_all()
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    assert len(simulation.writes) == 2 + 7
    assert [event.reason for event in simulation.events] == ["Starting", "Running"]


def test_rank_0_is_published_as_soon_as_it_has_an_address_and_the_others_together() -> None:
    simulation = started(nodes=3)
    simulation.change(1, address="10.0.0.2")
    simulation.settle()
    assert ("EndpointSlice", "pretrain") not in simulation.objects
    simulation.change(0, address="10.0.0.1")
    simulation.settle()
    assert _published(simulation) == {"pretrain-1-0": "10.0.0.1"}
    simulation.change(2, address="10.0.0.3")
    simulation.settle()
    assert _published(simulation) == {
        "pretrain-1-0": "10.0.0.1", "pretrain-1-1": "10.0.0.2", "pretrain-1-2": "10.0.0.3",
    }  # fmt: skip


def _published(simulation: Simulation) -> dict[str, str]:
    endpoints = simulation.objects["EndpointSlice", "pretrain"]["endpoints"]
    return {endpoint["hostname"]: endpoint["addresses"][0] for endpoint in endpoints}


def test_all_pods_succeeding_is_success_whatever_sidecars_do_and_then_frees_their_gpus() -> None:
    simulation = running()
    simulation.end(0)
    simulation.end(1, phase="Running")
    simulation.settle()
    assert simulation.job.status.state is State.COMPLETE
    assert simulation.pod(1).deleted_at is None, "its sidecar may still end by itself"
    outcome = simulation.outcome()
    assert outcome.check_at == simulation.now + timedelta(seconds=10)
    simulation.wait(10)
    simulation.settle()
    assert simulation.pod(1).deleted_at is not None
    assert simulation.pod(0).deleted_at is None, "an ended pod stays for its logs"


def test_a_finished_job_stays_finished_when_its_pods_vanish_or_its_spec_changes() -> None:
    simulation = running()
    simulation.end(0)
    simulation.end(1)
    simulation.settle()
    result = simulation.run
    simulation.pods.clear()
    simulation.edit(suspend=True)
    simulation.settle()
    assert simulation.job.status.observed_generation == 2
    assert simulation.run.completion_time == result.completion_time
    assert simulation.job.status.state is State.COMPLETE
    assert not simulation.pods


def test_another_run_id_runs_a_finished_job_again_as_a_new_attempt() -> None:
    simulation = running()
    simulation.end(0)
    simulation.end(1, 7, agent_says(1, 1, 7))
    simulation.settle()
    assert simulation.job.status.state is State.FAILED
    simulation.edit(runId="again")
    simulation.settle()
    assert simulation.job.status.attempt_number == 2
    assert simulation.job.status.failure is None
    assert {pod.attempt for pod in simulation.pods.values() if pod.deleted_at is None} == {2}


def test_another_run_id_replaces_a_running_run_once_its_pods_have_ended() -> None:
    simulation = running()
    simulation.edit(runId="b")
    simulation.settle()
    assert [event.reason for event in simulation.events if event.reason == "RunReplaced"]
    assert [trial.replaces for trial in simulation.tried] == [False, True]
    assert simulation.condition(ConditionType.RUNNING).reason == "WaitingForOldPods"
    assert set(simulation.pods) == {"pretrain-1-0", "pretrain-1-1"}
    assert all(pod.deleted_at for pod in simulation.pods.values())
    simulation.remove()
    simulation.settle()
    assert set(simulation.pods) == {"pretrain-2-0", "pretrain-2-1"}


def test_a_new_run_that_is_invalid_leaves_the_running_one_alone_and_can_be_taken_back() -> None:
    simulation = running()
    simulation.edit(runId="b", dsConfig=REFUSED)
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    assert simulation.condition(ConditionType.ACCEPTED).status == "False"
    assert not any(pod.deleted_at for pod in simulation.pods.values())
    simulation.edit(runId="", dsConfig=job().spec.ds_config)
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    assert simulation.job.status.attempt_number == 1
    assert simulation.condition(ConditionType.ACCEPTED).reason == "Accepted"


@pytest.mark.parametrize("exit_code", [0, 7])
def test_a_finished_run_stays_finished_when_a_next_one_is_refused_and_taken_back(exit_code: int) -> None:
    simulation = running()
    simulation.end(0)
    simulation.end(1, exit_code)
    simulation.settle()
    result = simulation.job.status
    simulation.edit(runId="b", dsConfig=REFUSED)
    simulation.settle()
    assert simulation.job.status.state is result.state
    assert simulation.condition(ConditionType.ACCEPTED).status == "False"
    simulation.remove(*simulation.pods)
    simulation.edit(runId="", dsConfig=job().spec.ds_config)
    simulation.settle()
    status = simulation.job.status
    assert (status.state, status.failure) == (result.state, result.failure)
    assert (status.run, status.attempt, status.attempts) == (result.run, result.attempt, result.attempts)
    assert simulation.condition(ConditionType.READY).message == (
        next(each.message for each in result.conditions if each.type == ConditionType.READY)
    )
    assert not simulation.pods


def test_suspending_frees_the_pods_and_resuming_is_a_new_attempt_of_the_same_run() -> None:
    simulation = running()
    started_at = simulation.run.start_time
    simulation.wait(5)
    simulation.edit(suspend=True)
    simulation.settle()
    assert simulation.job.status.state is State.SUSPENDING
    assert all(pod.deleted_at for pod in simulation.pods.values())
    simulation.remove()
    simulation.settle()
    assert simulation.job.status.state is State.SUSPENDED
    assert simulation.condition(ConditionType.READY).status == "True", "suspended is what was asked for"
    simulation.edit(suspend=False)
    simulation.settle()
    assert set(simulation.pods) == {"pretrain-2-0", "pretrain-2-1"}
    assert simulation.run.start_time == started_at
    assert "ConfigMap/pretrain-2-job-1" in simulation.writes
    assert "delete ConfigMap/pretrain-1-job-1" in simulation.writes
    assert {name for kind, name in simulation.objects if kind == "Secret"} == {"pretrain-2-job-1"}


def test_a_result_that_arrives_while_suspending_wins() -> None:
    simulation = running()
    simulation.edit(suspend=True)
    simulation.step()
    assert simulation.job.status.state is State.SUSPENDING
    simulation.end(0)
    simulation.end(1)
    simulation.settle()
    assert simulation.job.status.state is State.COMPLETE


def test_a_rank_that_failed_before_the_suspension_reached_it_fails_the_job() -> None:
    simulation = running()
    simulation.edit(suspend=True)
    simulation.step()
    simulation.end(1, 7, agent_says(1, 1, 7))
    simulation.settle()
    assert simulation.job.status.state is State.FAILED


def test_ranks_that_end_by_our_deletion_do_not_fail_the_job() -> None:
    simulation = running()
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.end(0, 143, agent_says(0, None, 143, "Terminated"))
    simulation.end(1, 143, agent_says(0, None, 143, "Terminated"))
    simulation.settle()
    simulation.remove()
    simulation.settle()
    assert simulation.job.status.state is State.SUSPENDED


def test_a_job_resumed_before_its_pods_have_ended_waits_for_them() -> None:
    simulation = running()
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.edit(suspend=False)
    simulation.settle()
    assert simulation.job.status.attempt_number == 2
    assert simulation.condition(ConditionType.RUNNING).reason == "WaitingForOldPods"
    simulation.remove()
    simulation.settle()
    assert set(simulation.pods) == {"pretrain-2-0", "pretrain-2-1"}


@pytest.mark.parametrize(
    ("asked", "accepted"),
    [
        ({"dsConfig": REFUSED}, "False"),
        ({"dsConfig": None, "dsConfigFrom": {"configMap": "absent", "key": "c"}}, "False"),
        ({}, "True"),
    ],
)
def test_suspension_is_obeyed_whatever_comes_of_the_run_that_is_asked_for_with_it(
    asked: dict[str, object], accepted: str
) -> None:
    simulation = running()
    simulation.edit(runId="b", suspend=True, **asked)
    simulation.settle()
    assert all(pod.deleted_at for pod in simulation.pods.values())
    simulation.remove()
    simulation.settle()
    assert simulation.job.status.state is State.SUSPENDED
    assert simulation.condition(ConditionType.ACCEPTED).status == accepted
    assert not simulation.pods


def test_a_pod_that_is_refused_on_trial_keeps_no_suspended_run_alive() -> None:
    simulation = running()
    simulation.trial_refusal = ("spec.containers[0].ports: Required value", True)
    simulation.edit(runId="b", suspend=True, template={"spec": {"containers": [{"name": "trainer", "ports": [{}]}]}})
    simulation.settle()
    simulation.remove()
    simulation.settle()
    assert simulation.condition(ConditionType.ACCEPTED).reason == "TemplateRejected"
    assert not simulation.pods


@pytest.mark.parametrize("pods_have_ended", [True, False])
def test_a_suspended_run_resumes_as_a_new_attempt_though_another_was_refused_meanwhile(pods_have_ended: bool) -> None:
    simulation = running()
    simulation.edit(suspend=True)
    simulation.settle()
    if pods_have_ended:
        simulation.remove()
        simulation.settle()
    simulation.edit(runId="b", suspend=False, dsConfig=REFUSED)
    simulation.settle()
    assert simulation.job.status.state is (State.SUSPENDED if pods_have_ended else State.SUSPENDING)
    simulation.wait(3600)
    if not pods_have_ended:
        simulation.end(0, 143, agent_says(0, None, 143, "Terminated"))
        simulation.end(1, 143, agent_says(0, None, 143, "Terminated"))
    simulation.edit(runId="", dsConfig=job().spec.ds_config)
    simulation.settle()
    simulation.remove()
    assert simulation.job.status.state is State.STARTING
    assert set(simulation.pods) == {"pretrain-2-0", "pretrain-2-1"}


def test_a_job_created_suspended_is_judged_and_begins_when_resumed() -> None:
    simulation = started(suspend=True)
    assert simulation.job.status.state is State.SUSPENDED
    assert not simulation.pods
    simulation.edit(suspend=False)
    simulation.settle()
    assert set(simulation.pods) == {"pretrain-1-0", "pretrain-1-1"}


def test_a_job_of_the_same_name_waits_for_the_pods_of_the_deleted_one() -> None:
    earlier = running()
    later = Simulation(job().model_copy(update={"metadata": earlier.job.metadata.model_copy(update={"uid": "job-2"})}))
    later.pods = dict(earlier.pods)
    later.settle()
    assert later.condition(ConditionType.RUNNING).reason == "WaitingForOldPods"
    assert set(later.pods) == set(earlier.pods)
    assert not any(pod.deleted_at for pod in later.pods.values()), "they are not ours to delete"
    later.pods.clear()
    later.settle()
    assert set(later.pods) == {"pretrain-1-0", "pretrain-1-1"}


def test_a_job_that_is_being_deleted_gets_neither_write_nor_child() -> None:
    simulation = started()
    simulation.pods.clear()
    simulation.writes.clear()
    deleted = simulation.job.metadata.model_copy(update={"deletion_timestamp": "2026-01-01T00:00:00Z"})
    simulation.job = simulation.job.model_copy(update={"metadata": deleted})
    simulation.settle()
    assert simulation.writes == []


def test_a_pod_that_an_old_leader_creates_late_is_deleted_on_sight() -> None:
    simulation = running()
    stray = simulation.pods["pretrain-1-0"]
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    simulation.pods[stray.name] = stray
    simulation.settle()
    assert simulation.pods[stray.name].deleted_at is not None


def test_a_copy_of_a_pod_that_somebody_makes_is_no_member_of_the_gang() -> None:
    simulation = running()
    copy = replace(simulation.pod(1), name="pretrain-1-1-debug", uid="copy")
    simulation.pods[copy.name] = replace(copy, phase="Failed", ready=False)
    simulation.settle()
    simulation.wait(60)
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    assert simulation.pods[copy.name].deleted_at is None


def test_counters_alone_are_written_once_a_minute() -> None:
    simulation = running(nodes=3)
    simulation.end(0)
    outcome = simulation.outcome()
    assert outcome.status == simulation.job.status
    assert outcome.check_at == simulation.now + timedelta(seconds=60)
    simulation.wait(60)
    simulation.settle()
    assert simulation.job.status.workers is not None
    assert simulation.job.status.workers.succeeded == 1


def test_what_the_agent_found_reaches_status_with_the_news_that_the_ranks_run() -> None:
    simulation = started(deepspeedVersion="0.18.9")
    simulation.agent = AgentReport(1, simulation.now, deepspeed_version="0.19.8", warnings=("/dev/shm has 64 MiB",))
    simulation.run_all()
    simulation.settle()
    assert simulation.run.deepspeed_version == "0.19.8"
    assert {finding.path for finding in simulation.job.status.findings} == {"spec.deepspeedVersion", "spec.training"}


@pytest.mark.parametrize("nodes", [1, 8])
def test_every_rank_is_counted(nodes: int) -> None:
    simulation = running(nodes=nodes, slotsPerNode=4, dsConfig={"train_micro_batch_size_per_gpu": 1})
    status = simulation.job.status
    assert simulation.run.world.size == 4 * nodes
    assert status.workers is not None
    assert status.workers.ready == nodes


def test_a_run_replaced_by_a_suspended_one_does_not_lend_it_its_result() -> None:
    simulation = running()
    simulation.end(0)
    simulation.end(1)
    simulation.settle()
    simulation.edit(runId="b", suspend=True)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    assert simulation.job.status.state is State.SUSPENDED
    simulation.edit(suspend=False)
    simulation.settle()
    assert simulation.job.status.state is State.STARTING
    assert len(simulation.pods) == 2


def test_pods_that_have_already_succeeded_do_not_keep_the_others_from_running() -> None:
    simulation = started(nodes=3, lifecycle={"startupDeadlineSeconds": 60})
    simulation.run_all()
    simulation.end(0)
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    simulation.wait(3600)
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
