"""A run that goes on after failures: in new attempts, and as its agents tell in the pods that are there."""

import json
from datetime import timedelta
from typing import Any

import pytest

from deepspeed_operator.api.attempt_status import AttemptOutcome, Phase
from deepspeed_operator.api.restarts import Restarts
from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.reconcile.observe.observed import AgentReport, Facts
from deepspeed_operator.reconcile.observe.read_as import read_as
from deepspeed_operator.reconcile.observe.rounds import Rounds
from tests.unit.reconcile.simulation import GRACE, Simulation, agent_says, job


def running(**policy: Any) -> Simulation:
    return Simulation(job(failurePolicy=policy)).train()


def preempt(simulation: Simulation, index: int = 1) -> None:
    """The scheduler ends a pod, and its peers end by that."""
    simulation.change(
        index, deleted_at=simulation.now, grace_ends=simulation.now + GRACE, disruption="PreemptionByScheduler"
    )
    for pod in (0, 1):
        simulation.end(pod, 143, agent_says(index, None, None, "Terminated"))


def back_off(simulation: Simulation) -> None:
    """The next attempt's time comes; meanwhile the kubelets end what was deleted."""
    simulation.settle()
    assert simulation.attempt.phase is Phase.BACKING_OFF
    deleted = [pod.name for pod in simulation.pods.values() if pod.deleted_at is not None]
    simulation.remove(*deleted)
    simulation.wait(400)
    simulation.settle()


def rounds(**told: Any) -> Rounds:
    found = read_as(Rounds, {"number": 1, **told})
    assert found is not None
    return found


def tell(simulation: Simulation, told: Rounds) -> None:
    simulation.agent = AgentReport(simulation.attempt.number, simulation.now, rounds=told)
    simulation.wait(60)
    simulation.settle()


def test_a_preempted_pod_costs_an_attempt_and_not_the_run() -> None:
    simulation = running()
    preempt(simulation)
    simulation.settle()
    status = simulation.job.status
    assert (status.state, status.attempt_number, status.failure) == (State.RESTARTING, 1, None)
    assert (status.restarts, simulation.run.restarts) == (1, Restarts(infrastructure=1))
    message = simulation.condition(ConditionType.RUNNING).message
    assert "Attempt 2 begins in " in message
    assert "was preempted by the scheduler, for a pod of higher priority; infrastructure restart 1 of 20." in message
    assert simulation.condition(ConditionType.RECONCILING).status == "True"
    assert simulation.condition(ConditionType.STALLED).status == "False"
    (ended,) = status.attempts
    assert (ended.outcome, ended.reason, ended.category) == (AttemptOutcome.FAILED, "Preempted", "Disruption")
    assert ended.message is not None
    assert ended.message.startswith("pod pretrain-1-1")
    back_off(simulation)
    assert (simulation.attempt.number, simulation.job.status.state) == (2, State.STARTING)
    simulation.run_all()
    simulation.settle()
    simulation.end(0)
    simulation.end(1)
    simulation.settle()
    assert (simulation.job.status.state, simulation.job.status.restarts) == (State.COMPLETE, 1)
    assert [event.reason for event in simulation.events] == [
        "Starting",
        "Running",
        "Preempted",
        "Starting",
        "Running",
        "Completed",
    ]


def test_a_new_attempt_is_recorded_before_anything_of_the_old_one_goes() -> None:
    simulation = running(replacementDeadlineSeconds=0)
    simulation.end(1, 1, agent_says(1, None, None, "PeerLost"))
    simulation.wait(12)
    simulation.writes.clear()
    simulation.settle()
    assert simulation.writes == ["status", "delete pretrain-1-0"], "its reason first, then what still runs"
    simulation.remove("pretrain-1-0")
    simulation.writes.clear()
    simulation.wait(60)
    simulation.settle()
    assert simulation.writes[0] == "status"
    assert sorted(simulation.writes[1:5]) == [
        "ConfigMap/pretrain-2-job-1", "Secret/pretrain-2-job-1", "pod pretrain-2-0", "pod pretrain-2-1",
    ]  # fmt: skip


def test_ended_pods_stay_for_their_logs_until_the_attempt_after_next() -> None:
    simulation = running(maxRestarts=5)
    for number in (1, 2, 3):
        simulation.end(0, 1, agent_says(1, 1, 1))
        simulation.end(1, 1, agent_says(1, 1, 1, stepped=True))
        back_off(simulation)
        here = {pod.attempt for pod in simulation.pods.values() if pod.deleted_at is None}
        assert here == {number, number + 1}
        simulation.run_all()
        simulation.settle()


def test_a_sidecar_of_an_ended_pod_gets_a_moment_before_its_pod_goes() -> None:
    simulation = running(backoffSeconds=100)
    preempt(simulation)
    simulation.change(0, phase="Running")
    simulation.settle()
    assert simulation.pod(0).deleted_at is None
    assert simulation.outcome().check_at == simulation.now + timedelta(seconds=10)
    simulation.wait(10)
    simulation.settle()
    assert simulation.pod(0).deleted_at is not None
    assert simulation.attempt.phase is Phase.BACKING_OFF


def test_the_next_attempt_waits_for_pods_whose_ranks_have_ended_so_that_their_logs_stay() -> None:
    """A kubelet tells first of a container's end and then of its pod's, and a back-off may be shorter than that."""
    simulation = running(maxRestarts=5, backoffSeconds=1)
    for index in (0, 1):
        simulation.end(index, 1, agent_says(1, 1, 1), phase="Running")
    simulation.settle()
    simulation.wait(3)
    simulation.settle()
    assert (simulation.attempt.number, simulation.attempt.phase) == (1, Phase.BACKING_OFF)
    for index in (0, 1):
        simulation.change(index, phase="Failed")
    simulation.settle()
    assert (simulation.attempt.number, simulation.attempt.phase) == (2, Phase.STARTING)
    first = [pod for pod in simulation.pods.values() if pod.attempt == 1]
    assert [pod.deleted_at for pod in first] == [None, None]


def test_the_program_is_tried_as_often_as_max_restarts_says() -> None:
    simulation = running(maxRestarts=2)
    for attempt in (1, 2, 3):
        assert simulation.attempt.number == attempt
        for index in (0, 1):
            simulation.end(index, 1, agent_says(1, 1, 1, signature=f"ValueError at step {attempt}", stepped=True))
        if attempt < 3:
            back_off(simulation)
            simulation.train()
    simulation.settle()
    status = simulation.job.status
    assert (status.state, status.restarts) == (State.FAILED, 2)
    assert status.failure is not None
    assert "no restart is left of 2 (spec.failurePolicy.maxRestarts)" in status.failure.message
    assert [each.outcome for each in status.attempts] == [AttemptOutcome.FAILED] * 3


def test_a_program_that_fails_twice_in_the_same_way_before_its_first_step_is_not_tried_again() -> None:
    simulation = running(maxRestarts=9)
    for _ in range(2):
        for index in (0, 1):
            simulation.end(index, 2, agent_says(1, 1, 2, signature="error: no such argument", stepped=False))
        simulation.settle()
        if simulation.attempt.phase is Phase.BACKING_OFF:
            back_off(simulation)
            simulation.train()
    status = simulation.job.status
    assert (status.state, status.restarts) == (State.FAILED, 1)
    assert status.failure is not None
    assert "failure 2 of this kind in a row" in status.failure.message


def test_infrastructure_restarts_are_counted_for_24_hours() -> None:
    simulation = running(maxInfrastructureRestarts=1)
    preempt(simulation)
    back_off(simulation)
    simulation.train()
    simulation.wait(24 * 3600)
    preempt(simulation)
    back_off(simulation)
    assert (simulation.attempt.number, simulation.job.status.restarts) == (3, 2)
    simulation.train()
    preempt(simulation)
    simulation.settle()
    assert simulation.job.status.state is State.FAILED


def test_suspending_between_attempts_holds_no_pods_and_keeps_the_counts() -> None:
    simulation = running(replacementDeadlineSeconds=0)
    simulation.end(1, 1, agent_says(1, None, None, "PeerLost"))
    simulation.wait(12)
    simulation.settle()
    simulation.edit(suspend=True)
    simulation.settle()
    assert simulation.job.status.state is State.SUSPENDING
    for _ in ("what runs", "what has ended"):
        simulation.remove()
        simulation.settle()
    assert (simulation.job.status.state, list(simulation.pods)) == (State.SUSPENDED, [])
    simulation.wait(3600)
    simulation.edit(suspend=False)
    simulation.settle()
    assert (simulation.attempt.number, simulation.job.status.restarts) == (2, 1)
    assert [each.outcome for each in simulation.job.status.attempts] == [AttemptOutcome.FAILED]
    simulation.train()


def test_another_run_id_between_attempts_begins_that_run_without_the_counts() -> None:
    simulation = running()
    preempt(simulation)
    simulation.settle()
    simulation.edit(runId="b")
    simulation.settle()
    assert (simulation.run.id, simulation.attempt.number, simulation.job.status.restarts) == ("b", 2, 0)
    assert simulation.run.repeated is None
    assert all(pod.deleted_at for pod in simulation.pods.values() if pod.attempt == 1)


def test_a_deleted_job_gets_nothing_more_between_attempts() -> None:
    simulation = running()
    preempt(simulation)
    simulation.settle()
    deleted = simulation.job.metadata.model_copy(update={"deletion_timestamp": "2026-01-01T00:00:00Z"})
    simulation.job = simulation.job.model_copy(update={"metadata": deleted})
    simulation.writes.clear()
    simulation.wait(3600)
    simulation.settle()
    assert simulation.writes == []


@pytest.mark.parametrize("exit_code", [0, 7])
def test_a_terminal_run_never_begins_again(exit_code: int) -> None:
    simulation = running(maxRestarts=0)
    simulation.end(0)
    simulation.end(1, exit_code, agent_says(1, 1, exit_code) if exit_code else "")
    simulation.settle()
    result = simulation.job.status
    assert result.state in {State.COMPLETE, State.FAILED}
    simulation.facts = Facts()
    simulation.pods.clear()
    simulation.wait(7 * 24 * 3600)
    simulation.edit(failurePolicy={"maxRestarts": 9})
    simulation.settle()
    assert simulation.job.status.attempt == result.attempt
    assert not simulation.pods


@pytest.mark.parametrize(
    ("reason", "more", "words"),
    [
        ("RankFailed", {"signal": 9}, "was killed by signal 9"),
        (
            "Hang",
            {"signature": "rank 3 is in a.py:8 (f), the others in all_reduce"},
            "hung: rank 3 is in a.py:8 (f), t",
        ),
    ],
)
def test_a_restart_in_place_costs_one_write_and_one_event_that_says_why(
    reason: str, more: dict[str, Any], words: str
) -> None:
    simulation = running()
    simulation.writes.clear()
    last = {"time": 0, "reason": reason, "rank": 3, "pod": "pretrain-1-1", "node": "node1", **more}
    tell(simulation, rounds(number=2, infrastructure=1, last=last))
    assert simulation.writes == ["status"]
    event = simulation.events[-1]
    assert (event.type, event.reason) == ("Warning", reason)
    assert f"round 2 of attempt 1: rank 3 in pod pretrain-1-1 on node node1 {words}" in event.message
    status = simulation.job.status
    assert (status.state, status.restarts, simulation.attempt.round) == (State.RUNNING, 1, 2)
    assert simulation.attempt.restarts == Restarts(infrastructure=1)
    assert simulation.run.restarts is None


def test_restarts_in_place_only_grow_and_never_beyond_what_the_attempt_had() -> None:
    simulation = running(maxRestarts=2)
    tell(simulation, rounds(number=3, user=2))
    tell(simulation, rounds(number=1))
    assert simulation.job.status.restarts == 2
    tell(simulation, rounds(number=999, user=999, infrastructure=1))
    assert simulation.attempt.restarts == Restarts(user=2, infrastructure=1)


def test_what_an_attempt_has_used_is_not_there_for_the_next_one() -> None:
    simulation = running(maxRestarts=3)
    tell(simulation, rounds(number=2, user=1))
    for index in (0, 1):
        said = agent_says(1, 1, 1, stepped=True, rounds={"number": 3, "user": 2, "repeated": {"key": "k", "count": 1}})
        simulation.end(index, 1, said)
    back_off(simulation)
    assert simulation.run.restarts == Restarts(user=3)
    assert simulation.attempt.restarts_left == Restarts(user=0, infrastructure=20)
    document = json.loads(simulation.config_maps["pretrain-2-job-1"]["launch.json"])
    assert document["failurePolicy"]["restarts"] == {"user": 0, "infrastructure": 20}
    assert document["failurePolicy"]["repeated"]["count"] == 1
    assert (simulation.job.status.restarts, simulation.job.status.attempts[-1].rounds) == (3, 3)


def test_failures_that_the_agents_have_counted_without_a_step_count_for_the_run() -> None:
    simulation = running()
    said = {"reason": "RankFailed", "signature": "NCCL error"}
    key = "83f0d2"  # whatever it is: another failure begins anew
    told = {"number": 3, "infrastructure": 2, "repeated": {"key": key, "count": 2}}
    for index in (0, 1):
        simulation.end(
            index, 137, agent_says(1, 1, None, signal=9, stepped=False, rounds=told, signature=said["signature"])
        )
    simulation.settle()
    assert simulation.run.repeated is not None
    assert simulation.run.repeated.count == 1
    same = {**told, "number": 5, "infrastructure": 4, "repeated": {"key": simulation.run.repeated.key, "count": 2}}
    back_off(simulation)
    simulation.train()
    for index in (0, 1):
        simulation.end(
            index, 137, agent_says(1, 1, None, signal=9, stepped=False, rounds=same, signature=said["signature"])
        )
    simulation.settle()
    assert simulation.job.status.state is State.FAILED
    assert simulation.job.status.failure is not None
    assert "failure 3 of this kind in a row" in simulation.job.status.failure.message


@pytest.mark.parametrize(
    "told",
    [
        None,
        7,
        "x",
        [],
        {},
        {"number": 0},
        {"number": 2**40},
        {"number": 2, "user": -1},
        {"number": 2, "last": {"reason": "<b>"}},
    ],
)
def test_rounds_that_status_could_not_hold_are_not_told(told: object) -> None:
    assert read_as(Rounds, told) is None
    simulation = running()
    for index in (0, 1):
        simulation.end(index, 143, agent_says(1, None, None, "Terminated", rounds=told))
    simulation.settle()
    assert simulation.job.status.attempts[-1].reason == "Terminated", "the rest of the message counts"


def test_ranks_that_do_not_start_in_time_are_tried_again_where_nobody_can_correct_it() -> None:
    simulation = Simulation(job(failurePolicy={}, lifecycle={"startupDeadlineSeconds": 60}))
    simulation.settle()
    simulation.change(0, unschedulable="0/2 nodes are available")
    simulation.wait(61)
    simulation.settle()
    assert simulation.job.status.state is State.RESTARTING
    assert simulation.pod(0, 1).deleted_at is not None


def test_an_image_that_cannot_be_pulled_ends_the_run() -> None:
    simulation = Simulation(job(failurePolicy={}, lifecycle={"startupDeadlineSeconds": 60}))
    simulation.settle()
    simulation.change(0, node="n", waiting_container="trainer", waiting_reason="ErrImagePull", waiting_message="no")
    simulation.wait(61)
    simulation.settle()
    assert simulation.job.status.state is State.FAILED
