"""A run that spec asks for and that is refused changes nothing of the accepted one, which is observed as before."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.api.transport import Transport
from deepspeed_operator.reconcile.actions import DryRunPod, JudgeRun
from deepspeed_operator.reconcile.observe.observed import AgentReport, Facts, SetAside
from deepspeed_operator.reconcile.observe.read_as import read_as
from tests.unit.reconcile.admission.test_memory_fit import MODEL
from tests.unit.reconcile.admission.test_memory_fit import simulation as with_model
from tests.unit.reconcile.failure.test_out_of_memory import OUT_OF_MEMORY
from tests.unit.reconcile.runtime.test_observed_transport import SOCKET
from tests.unit.reconcile.simulation import Simulation, agent_says, job
from tests.unit.reconcile.test_life_of_a_job import REFUSED, running, started

CONFIG = job().spec.ds_config
ABSENT = {"dsConfig": None, "dsConfigFrom": {"configMap": "absent", "key": "c"}}


def refuse(simulation: Simulation, **spec: Any) -> Simulation:
    """Ask for run b, which is refused, and let an hour pass."""
    simulation.edit(runId="b", **(spec or {"dsConfig": REFUSED}))
    simulation.settle()
    assert simulation.condition(ConditionType.ACCEPTED).status == "False"
    simulation.wait(3600)
    simulation.settle()
    return simulation


def take_back(simulation: Simulation) -> Simulation:
    simulation.edit(runId="", dsConfig=CONFIG, dsConfigFrom=None)
    simulation.settle()
    return simulation


def test_a_run_that_trains_outlives_a_refused_one_whatever_its_pods_do_when_it_is_taken_back() -> None:
    simulation = running(lifecycle={"startupDeadlineSeconds": 60})
    simulation.wait(7200)
    refuse(simulation)
    simulation.change(1, ready=False)
    take_back(simulation)
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    assert not any(pod.deleted_at for pod in simulation.pods.values())


def test_status_says_that_one_run_goes_on_and_which_is_refused_and_why() -> None:
    simulation = running(runId="a")
    since = simulation.condition(ConditionType.RUNNING).last_transition_time
    refuse(simulation)
    status = simulation.job.status
    assert (status.state, simulation.run.id, status.observed_generation) == (State.RUNNING, "a", 2)
    assert {each.type: each.status for each in status.conditions if each.type != "MemoryFit"} == {
        "Accepted": "False", "Running": "True", "Suspended": "False", "Complete": "False", "Failed": "False",
        "Ready": "False", "Reconciling": "False", "Stalled": "True",
    }  # fmt: skip
    assert simulation.condition(ConditionType.RUNNING).last_transition_time == since
    accepted, ready = simulation.condition(ConditionType.ACCEPTED), simulation.condition(ConditionType.READY)
    assert accepted.message.startswith("Run 'b' is refused, and run 'a' is left as it is: 1 error")
    assert "spec.dsConfig" in accepted.message
    assert ready.message == (
        "Run 'b' is refused, and run 'a' is left as it is; condition Accepted says why. 2 ranks run in 2 pods; "
        "kubectl logs pretrain-1-0 shows rank 0."
    )
    assert {each.reason for each in (accepted, ready)} == {"InvalidDeepSpeedConfig"}
    refusals = [event for event in simulation.events if event.reason == "InvalidDeepSpeedConfig"]
    assert [(event.type, event.message) for event in refusals] == [("Warning", accepted.message)]


def test_a_refused_run_that_is_taken_back_leaves_no_trace() -> None:
    simulation = running()
    before, events = simulation.job.status, len(simulation.events)
    simulation.edit(runId="b", dsConfig=REFUSED)
    simulation.settle()
    take_back(simulation)
    after = simulation.job.status
    assert after.state is State.RUNNING
    assert [(each.status, each.reason, each.message) for each in after.conditions] == [
        (each.status, each.reason, each.message) for each in before.conditions
    ]
    assert (after.findings, after.run, after.attempt) == (before.findings, before.run, before.attempt)
    assert [event.reason for event in simulation.events[events:]] == ["InvalidDeepSpeedConfig"]


@pytest.mark.parametrize(("exit_code", "state"), [(0, State.COMPLETE), (7, State.FAILED)])
@pytest.mark.parametrize("asked", [{"dsConfig": REFUSED}, ABSENT], ids=["wrong", "absent"])
def test_the_end_of_the_accepted_run_is_recorded_beside_the_refusal(
    asked: dict[str, Any], exit_code: int, state: State
) -> None:
    simulation = refuse(running(), **asked)
    simulation.end(0)
    simulation.end(1, exit_code, agent_says(1, 1, exit_code) if exit_code else "")
    simulation.settle()
    status = simulation.job.status
    assert (status.state, simulation.run.id, simulation.attempt.number) == (state, "", 1)
    assert simulation.run.completion_time is not None
    assert status.workers is not None
    assert status.workers.active == 0
    assert simulation.condition(ConditionType.ACCEPTED).status == "False"
    kind = ConditionType.COMPLETE if state is State.COMPLETE else ConditionType.FAILED
    result = simulation.condition(kind)
    assert result.status == "True"
    assert result.message in simulation.condition(ConditionType.READY).message
    assert [event.message for event in simulation.events if event.reason == result.reason] == [result.message]
    take_back(simulation)
    assert simulation.condition(ConditionType.READY).message == result.message
    assert simulation.condition(ConditionType.ACCEPTED).reason == "Accepted"


def test_pods_and_peers_of_the_accepted_run_are_observed_while_another_is_refused() -> None:
    simulation = refuse(running(nodes=3))
    stray = replace(simulation.pod(0), name="pretrain-7-0", uid="stray", attempt=7)
    simulation.pods[stray.name] = stray
    simulation.end(2)
    simulation.wait(60)
    simulation.settle()
    assert simulation.pods[stray.name].deleted_at is not None
    assert simulation.job.status.workers is not None
    assert simulation.job.status.workers.succeeded == 1
    simulation.remove(stray.name, "pretrain-1-1")
    simulation.settle()
    assert simulation.job.status.failure is not None
    assert simulation.job.status.failure.reason == "PodDeleted"


def test_a_run_that_starts_begins_to_run_and_is_held_to_its_deadline_though_another_is_refused() -> None:
    simulation = started()
    simulation.edit(runId="b", dsConfig=REFUSED)
    simulation.settle()
    assert simulation.job.status.state is State.STARTING
    assert simulation.condition(ConditionType.RECONCILING).status == "False"
    simulation.run_all()
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    late = started()
    refuse(late)
    assert late.job.status.failure is not None
    assert late.job.status.failure.reason == "StartupDeadlineExceeded"


def test_a_refused_run_is_judged_once_and_its_pod_tried_when_it_is_due_while_the_accepted_one_is_observed() -> None:
    simulation = refuse(running())
    judged = simulation.judgements
    for _ in range(10):
        simulation.wait(30)
        simulation.settle()
    assert simulation.judgements == judged
    template: dict[str, Any] = {"spec": {"containers": [{"name": "trainer", "ports": [{}]}]}}
    simulation.trial_refusal = ("spec.containers[0].ports: Required value", True)
    simulation.edit(dsConfig=CONFIG, template=template)
    simulation.settle()
    assert simulation.condition(ConditionType.ACCEPTED).reason == "TemplateRejected"
    asked = 0
    for _ in range(10):
        simulation.wait(30)
        asked += sum(isinstance(action, JudgeRun | DryRunPod) for action in simulation.step().questions)
        simulation.settle()
    assert asked == 1, "after 5 minutes"


@pytest.mark.parametrize("when", ["running", "complete", "suspended"])
def test_an_operator_that_has_just_begun_writes_nothing_about_a_refused_run(when: str) -> None:
    simulation = running()
    if when == "suspended":
        simulation.edit(suspend=True)
        simulation.settle()
        simulation.remove()
        simulation.settle()
    refuse(simulation)
    if when == "complete":
        for index in range(2):
            simulation.end(index)
        simulation.settle()
    written, events = len(simulation.writes), len(simulation.events)
    simulation.facts = Facts()
    simulation.settle()
    assert (simulation.writes[written:], simulation.events[events:]) == ([], [])


def test_a_suspended_run_stays_suspended_while_the_one_that_is_to_follow_is_refused() -> None:
    simulation = running()
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.edit(runId="b", suspend=False, dsConfig=REFUSED)
    simulation.settle()
    assert simulation.job.status.state is State.SUSPENDING
    simulation.remove()
    simulation.settle()
    suspended = simulation.condition(ConditionType.SUSPENDED)
    assert (simulation.job.status.state, suspended.status) == (State.SUSPENDED, "True")
    assert "set spec.runId back to '' to begin a new attempt" in suspended.message
    assert not simulation.pods


def test_no_pod_of_the_accepted_run_is_made_of_the_spec_of_a_refused_one() -> None:
    simulation = running(runId="a")
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.edit(suspend=False)
    simulation.settle()
    assert simulation.condition(ConditionType.RUNNING).reason == "WaitingForOldPods"
    simulation.edit(runId="b", training={"script": "other.py"}, dsConfig=REFUSED)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    assert not simulation.pods
    said = simulation.condition(ConditionType.RUNNING)
    assert said.reason == "InvalidSpec"
    assert "spec is that of run 'b': set spec.runId back to 'a' with the spec of that run" in said.message
    simulation.edit(runId="a", training={"script": "train.py"}, dsConfig=CONFIG)
    simulation.settle()
    assert set(simulation.pods) == {"pretrain-2-0", "pretrain-2-1"}


def test_what_was_deleted_of_an_attempt_is_not_made_again_of_the_spec_of_a_refused_run() -> None:
    simulation = started()
    for index in range(2):
        simulation.change(index, node=f"node{index}", set_up=False)
    simulation.edit(runId="b", training={"script": "other.py"}, dsConfig=REFUSED)
    simulation.settle()
    content = dict(simulation.objects)
    simulation.objects.clear()
    simulation.wait(20)
    simulation.settle()
    assert ("ConfigMap", "pretrain-1-job-1") not in simulation.objects
    take_back(simulation)
    simulation.edit(training={"script": "train.py"})
    simulation.settle()
    assert simulation.objects["ConfigMap", "pretrain-1-job-1"] == content["ConfigMap", "pretrain-1-job-1"]


def test_the_accepted_run_is_not_compared_with_the_spec_of_a_refused_one() -> None:
    simulation = started()
    simulation.edit(runId="b", dsConfig=REFUSED, deepspeedVersion="0.18.9", network={"profile": "InfiniBand"})
    simulation.agent = AgentReport(1, simulation.now, deepspeed_version="0.19.8", transport=read_as(Transport, SOCKET))
    simulation.run_all()
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    assert simulation.job.status.findings == []
    assert "TransportMismatch" not in {event.reason for event in simulation.events}


@pytest.mark.parametrize("later", [{}, {"model": {**MODEL, "sequenceLength": 128}}], ids=["as it was", "another"])
def test_a_gpu_that_ran_out_of_memory_is_explained_by_the_model_of_its_own_run(later: dict[str, Any]) -> None:
    simulation = refuse(with_model().train(), dsConfig=REFUSED, **later)
    said = OUT_OF_MEMORY.format(tried="1.95", allocated="75.51")
    for index in range(2):
        simulation.end(index, 1, agent_says(1, 1, 1, signature=said))
    simulation.settle()
    explained = "Predicted: most memory" in simulation.condition(ConditionType.FAILED).message
    assert explained == (not later)


def test_a_run_that_is_replaced_by_an_accepted_one_in_the_pass_in_which_it_ends_has_its_result_told() -> None:
    simulation = running()
    simulation.edit(runId="b")
    simulation.end(0)
    simulation.end(1)
    simulation.settle()
    assert [event.reason for event in simulation.events[-2:]] == ["Completed", "Starting"]
    assert (simulation.run.id, simulation.job.status.attempt_number) == ("b", 2)


def test_a_job_that_is_set_aside_keeps_what_was_said_of_a_refused_run() -> None:
    simulation = refuse(running())
    before = simulation.condition(ConditionType.ACCEPTED)
    simulation.facts = Facts(aside=SetAside("why", simulation.now + timedelta(seconds=10)))
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    assert simulation.condition(ConditionType.ACCEPTED) == before
    assert simulation.condition(ConditionType.RUNNING).reason == "Quarantined"


def test_an_image_that_cannot_be_pulled_is_said_once_though_another_run_is_refused() -> None:
    simulation = started()
    simulation.change(0, node="n", waiting_container="trainer", waiting_reason="ErrImagePull", waiting_message="no")
    simulation.edit(runId="b", dsConfig=REFUSED)
    simulation.settle()
    words = simulation.condition(ConditionType.RUNNING)
    assert words.reason == "ImagePullFailed"
    simulation.change(0, waiting_reason="ImagePullBackOff", waiting_message="Back-off pulling image")
    written = len(simulation.writes)
    simulation.settle()
    assert simulation.writes[written:] == []


def test_a_run_for_which_a_quota_has_no_room_waits_beside_the_accepted_one() -> None:
    simulation = running(runId="a")
    accepted = simulation.condition(ConditionType.ACCEPTED).message
    simulation.trial_refusal, simulation.trial_quota = ("exceeded quota: gpus", False), True
    simulation.edit(runId="b")
    simulation.settle()
    status = simulation.job.status
    assert (status.state, simulation.run.id) == (State.RUNNING, "a")
    assert {each.type: each.status for each in status.conditions if each.type != "MemoryFit"} == {
        "Accepted": "True", "Running": "True", "Suspended": "False", "Complete": "False", "Failed": "False",
        "Ready": "False", "Reconciling": "True", "Stalled": "False",
    }  # fmt: skip
    assert simulation.condition(ConditionType.ACCEPTED).message.startswith(
        "Run 'b' waits, and run 'a' is left as it is"
    )
    simulation.edit(runId="a")
    simulation.settle()
    assert simulation.condition(ConditionType.READY).status == "True"
    assert simulation.condition(ConditionType.ACCEPTED).message == accepted
