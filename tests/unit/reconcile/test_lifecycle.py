"""How long a run may go on, what is kept of it afterwards, and who runs it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.reconcile.observe.observed import Facts
from deepspeed_operator.reconcile.observe.pods import Termination
from tests.unit.reconcile.simulation import Simulation, agent_says, job
from tests.unit.reconcile.test_attempts import suspend


def complete(simulation: Simulation) -> Simulation:
    for pod in list(simulation.pods.values()):
        simulation.end(pod.index)
    simulation.settle()
    assert simulation.job.status.state is State.COMPLETE
    return simulation


def kinds(simulation: Simulation) -> set[str]:
    return {kind for kind, _ in simulation.objects}


def test_a_run_fails_once_its_ranks_have_run_as_long_as_they_may() -> None:
    simulation = Simulation(job(lifecycle={"activeDeadlineSeconds": 100}))
    simulation.settle()
    simulation.wait(500)  # no rank runs
    simulation.train()
    simulation.wait(99)
    outcome = simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    assert outcome.check_at is not None
    assert (outcome.check_at - simulation.now).total_seconds() == 1
    simulation.wait(1)
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (simulation.job.status.state, failure.reason) == (State.FAILED, "DeadlineExceeded")
    assert "run for 100 s" in failure.message
    assert all(pod.deleted_at is not None for pod in simulation.pods.values()), "told to end, with their grace"
    assert simulation.run.active_seconds == 100


def test_time_before_a_suspension_counts_and_time_in_it_does_not() -> None:
    simulation = Simulation(job(lifecycle={"activeDeadlineSeconds": 100})).train()
    simulation.wait(60)
    suspend(simulation)
    assert simulation.run.active_seconds == 60
    simulation.wait(10_000)
    simulation.facts = Facts()  # another operator goes on
    simulation.edit(suspend=False)
    simulation.train()
    simulation.wait(39)
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    simulation.wait(1)
    simulation.settle()
    assert (simulation.job.status.state, simulation.run.active_seconds) == (State.FAILED, 100)


def test_a_run_that_used_its_time_up_while_it_was_suspended_starts_no_pod_again() -> None:
    simulation = Simulation(job(lifecycle={"activeDeadlineSeconds": 100})).train()
    simulation.wait(90)
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.wait(20)  # its ranks save
    simulation.remove()
    simulation.settle()
    assert simulation.job.status.state is State.SUSPENDED
    simulation.edit(suspend=False)
    simulation.settle()
    assert simulation.job.status.state is State.FAILED
    assert simulation.pods == {}


def test_a_result_that_comes_with_the_deadline_wins() -> None:
    simulation = Simulation(job(lifecycle={"activeDeadlineSeconds": 100})).train()
    simulation.wait(100)
    complete(simulation)


def test_a_run_that_is_asked_for_and_refused_brings_no_deadline_to_the_one_that_goes_on() -> None:
    simulation = Simulation(job(lifecycle={"activeDeadlineSeconds": 1000})).train()
    simulation.edit(runId="b", dsConfig={"train_batch_size": 7}, lifecycle={"activeDeadlineSeconds": 1})
    simulation.wait(100)
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING


def test_every_run_has_its_whole_time() -> None:
    simulation = Simulation(job(lifecycle={"activeDeadlineSeconds": 100})).train()
    simulation.wait(90)
    complete(simulation)
    simulation.edit(runId="b")
    simulation.train()
    simulation.wait(90)
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING


@pytest.mark.parametrize("exit_code", [0, 7])
def test_children_go_after_their_time_to_live_and_the_job_never_runs_again(exit_code: int) -> None:
    simulation = Simulation(job(lifecycle={"ttlSecondsAfterFinished": 60})).train()
    for index in range(2):
        simulation.end(index, exit_code, agent_says(0, 0, exit_code) if exit_code else "")
    simulation.settle()
    state = simulation.job.status.state
    assert state in {State.COMPLETE, State.FAILED}
    simulation.wait(59)
    outcome = simulation.settle()
    assert kinds(simulation) == {"ConfigMap", "Secret", "Service", "EndpointSlice"}
    assert outcome.check_at is not None
    assert (outcome.check_at - simulation.now).total_seconds() == 1
    simulation.wait(1)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    assert (simulation.objects, simulation.pods) == ({}, {})
    assert simulation.run.cleanup_time == "2026-01-01T00:01:00Z"
    writes = len(simulation.writes)
    for change in ({}, {"image": "other:2"}, {"suspend": True}, {"suspend": False}, {"lifecycle": None}):
        simulation.facts = Facts()  # another operator each time
        simulation.wait(1000)
        simulation.edit(**change)
        simulation.settle()
        assert (simulation.objects, simulation.pods, simulation.job.status.state) == ({}, {}, state)
    assert {*simulation.writes[writes:]} == {"status"}, "what is said of the changes of spec"
    simulation.edit(runId="b")
    simulation.train()
    assert kinds(simulation) == {"ConfigMap", "Secret", "Service", "EndpointSlice"}


def test_children_go_although_an_operator_ended_while_it_deleted_them() -> None:
    simulation = complete(Simulation(job(lifecycle={"ttlSecondsAfterFinished": 0})).train())
    simulation.facts = Facts()
    simulation.settle()
    assert (simulation.objects, simulation.run.cleanup_time) == ({}, "2026-01-01T00:00:00Z")


def test_a_time_to_live_counts_for_no_run_that_is_suspended() -> None:
    simulation = Simulation(job(lifecycle={"ttlSecondsAfterFinished": 60})).train()
    suspend(simulation)
    simulation.wait(1000)
    simulation.settle()
    assert simulation.attempt.phase is Phase.SUSPENDED
    assert ("Service", "pretrain") in simulation.objects


def test_pods_that_have_ended_stay_unless_all_are_to_be_deleted() -> None:
    kept = complete(Simulation(job()).train())
    assert [pod.deleted_at for pod in kept.pods.values()] == [None, None]
    deleted = complete(Simulation(job(lifecycle={"cleanPodPolicy": "DeleteAll"})).train())
    assert all(pod.deleted_at is not None for pod in deleted.pods.values())
    assert ("Service", "pretrain") in deleted.objects


def test_with_all_pods_to_be_deleted_a_sidecar_still_has_its_moment() -> None:
    simulation = Simulation(job(lifecycle={"cleanPodPolicy": "DeleteAll"})).train()
    for index in range(2):
        simulation.end(index, phase="Running")
    simulation.settle()
    assert [pod.deleted_at for pod in simulation.pods.values()] == [None, None]
    simulation.wait(10)
    simulation.settle()
    assert all(pod.deleted_at is not None for pod in simulation.pods.values())


def test_a_refused_run_changes_nothing_of_what_is_kept_of_the_one_before() -> None:
    simulation = complete(Simulation(job()).train())
    simulation.edit(
        runId="b",
        dsConfig={"train_batch_size": 7},
        lifecycle={"cleanPodPolicy": "DeleteAll", "ttlSecondsAfterFinished": 0},
    )
    simulation.settle()
    assert [pod.deleted_at for pod in simulation.pods.values()] == [None, None]
    assert kinds(simulation) == {"ConfigMap", "Secret", "Service", "EndpointSlice"}


def test_a_job_of_another_controller_is_left_alone() -> None:
    simulation = Simulation(job(managedBy="kueue.x-k8s.io/multikueue"))
    outcome = simulation.settle()
    assert (outcome.actions, outcome.events, outcome.questions) == ((), (), ())
    assert simulation.job.status.conditions == []


def test_the_heads_success_is_the_runs_and_the_others_go() -> None:
    simulation = Simulation(job(successPolicy="Head")).train()
    simulation.end(0, 0, agent_says(0, None, None, "Completed"))
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING, "the others have a moment to end by themselves"
    simulation.wait(12)
    simulation.settle()
    assert simulation.job.status.state is State.COMPLETE
    assert simulation.condition(ConditionType.COMPLETE).message.startswith("Pod 0, which decides")
    assert [simulation.pod(index).deleted_at is None for index in (0, 1)] == [True, False]


def killed(simulation: Simulation, index: int) -> None:
    said = agent_says(index, None, None, "Terminated", killedAfterSeconds=25)
    simulation.end(index, 143, said)


def test_ranks_that_did_not_end_within_their_grace_are_told_once() -> None:
    simulation = Simulation(job()).train()
    simulation.edit(suspend=True)
    simulation.settle()
    killed(simulation, 0)
    simulation.end(1, 143, agent_says(0, None, None, "Terminated"))
    simulation.settle()
    for index in (0, 1):
        simulation.pods[simulation.pod(index).name] = simulation.pod(index).last_view()
    simulation.settle()
    assert simulation.job.status.state is State.SUSPENDED
    simulation.facts = Facts()
    simulation.settle()
    (event,) = [each for each in simulation.events if each.reason == "GraceExceeded"]
    assert event.message.startswith("Attempt 1: ranks in pod pretrain-1-0 were ended by SIGKILL after 25 s of grace")
    assert [each.killed_after_seconds for each in simulation.job.status.attempts] == [25]


def test_the_grace_of_a_run_whose_time_is_over_is_told_although_it_has_failed_by_then() -> None:
    simulation = Simulation(job(lifecycle={"activeDeadlineSeconds": 100})).train()
    simulation.wait(100)
    simulation.settle()
    assert simulation.job.status.state is State.FAILED
    killed(simulation, 0)
    killed(simulation, 1)
    simulation.settle()
    assert simulation.events[-1].reason == "GraceExceeded"
    assert "pod pretrain-1-0 and 1 more" in simulation.events[-1].message
    assert simulation.job.status.failure is not None
    assert simulation.job.status.failure.reason == "DeadlineExceeded"


def test_the_grace_of_a_run_that_another_replaces_is_told() -> None:
    simulation = Simulation(job(runId="a")).train()
    simulation.edit(runId="b")
    simulation.settle()
    said = agent_says(0, None, None, "Terminated", killedAfterSeconds=25)
    old = simulation.pod(0, attempt=1)
    ended = Termination(143, None, "Error", said, simulation.now)
    simulation.pods[old.name] = replace(old, phase="Failed", termination=ended)
    simulation.settle()
    assert [each.killed_after_seconds for each in simulation.job.status.attempts] == [25]
    assert (simulation.run.id, simulation.attempt.number) == ("b", 2)


def test_what_may_not_be_deleted_is_said_and_tried_again_after_a_while() -> None:
    simulation = complete(Simulation(job(lifecycle={"ttlSecondsAfterFinished": 60})).train())
    simulation.undeletable = 'configmaps "pretrain-1-job-1" is forbidden'
    simulation.wait(60)
    outcome = simulation.settle()
    (said,) = [each for each in simulation.job.status.findings if each.code == "children-kept"]
    assert 'configmaps "pretrain-1-job-1" is forbidden' in said.message
    assert simulation.run.cleanup_time is None
    assert simulation.deletions_refused == 1
    assert outcome.check_at == simulation.now + timedelta(minutes=5)
    simulation.wait(299)
    simulation.settle()
    assert simulation.deletions_refused == 1
    simulation.undeletable = None
    simulation.wait(1)
    simulation.settle()
    assert (simulation.objects, simulation.job.status.findings) == ({}, [])
    assert simulation.run.cleanup_time is not None
