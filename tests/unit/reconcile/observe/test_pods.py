"""What is read of a pod, whatever else runs in it."""

from datetime import timedelta
from typing import Any

import pytest

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.job.world import world_of
from deepspeed_operator.reconcile.observe.pods import PodView, Stage, moment, pod_view
from deepspeed_operator.render.attempt import Attempt
from tests.unit.reconcile.simulation import INSTALLATION, job

THEN = "2026-01-01T00:00:00Z"
RUNS = {"running": {"startedAt": THEN}}
ENDED = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": THEN}}
SIDECAR_ENDED = {"status": "False", "reason": "ContainersNotReady"}
GATE_CLOSED = {"status": "False", "reason": "ReadinessGatesNotReady"}
NODE_LOST = {"status": "False"}


@pytest.mark.parametrize(
    ("condition", "trainer_ready", "ready"),
    [
        ({"status": "True"}, True, True),
        (SIDECAR_ENDED, True, True),
        (GATE_CLOSED, True, True),
        ({"status": "False", "reason": "ContainersNotReady"}, False, False),
        (NODE_LOST, True, False),
    ],
)
def test_a_pod_is_ready_when_its_trainer_is(condition: dict[str, Any], trainer_ready: bool, ready: bool) -> None:
    given = job(template={"spec": {"containers": [{"name": "fetch", "image": "fetch:1"}, {"name": "trainer"}]}})
    containers = [
        {"name": "fetch", "ready": False, "state": ENDED},
        {"name": "trainer", "ready": trainer_ready, "state": RUNS},
    ]
    status = {"phase": "Running", "conditions": [{"type": "Ready", **condition}], "containerStatuses": containers}
    assert viewed(given, status).ready is ready


def test_a_pod_that_is_deleted_is_not_ready_whatever_its_kubelet_says() -> None:
    status = {"phase": "Running", "containerStatuses": [{"name": "trainer", "ready": True, "state": RUNS}]}
    assert viewed(job(), status).ready
    assert not viewed(job(), status, {"deletionTimestamp": THEN, "deletionGracePeriodSeconds": 30}).ready


def viewed(given: DeepSpeedJob, status: dict[str, Any], metadata: dict[str, Any] | None = None, **spec: str) -> PodView:
    pod = Attempt(given, 1, world_of(given.spec), None, INSTALLATION).pod(0)
    pod["metadata"] |= {"uid": "pod-1", "resourceVersion": "1", **(metadata or {})}
    return pod_view({**pod, "spec": {**pod["spec"], **spec}, "status": status}, moment(THEN))


@pytest.mark.parametrize(
    ("reason", "words"), [("Unschedulable", "no room"), ("SchedulerError", "no room"), ("SchedulingGated", None)]
)
def test_the_schedulers_words_are_kept_but_for_a_queues_gate(reason: str, words: str | None) -> None:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "no room"}
    pod = viewed(job(), {"phase": "Pending", "conditions": [scheduled]})
    assert (pod.unschedulable, pod.stage) == (words, Stage.UNSCHEDULED)


@pytest.mark.parametrize("gates", [(), ("kueue.x-k8s.io/admission", "b")])
def test_what_keeps_the_scheduler_from_a_pod_is_seen(gates: tuple[str, ...]) -> None:
    listed: Any = [{"name": gate} for gate in gates]
    spec = {"schedulingGates": listed} if gates else {}
    assert viewed(job(), {"phase": "Pending"}, **spec).gates == gates


@pytest.mark.parametrize(
    ("phase", "ready_to_start", "stage"),
    [
        ("Pending", [], Stage.SET_UP),
        ("Pending", [{"status": "False"}], Stage.BEING_SET_UP),
        ("Pending", [{"status": "True"}], Stage.SET_UP),
        ("Running", [{"status": "False"}], Stage.RUNNING),
        ("Failed", [{"status": "False"}], Stage.FINISHED),
    ],
)
def test_a_pod_is_being_set_up_only_while_its_node_says_so(
    phase: str, ready_to_start: list[dict[str, Any]], stage: Stage
) -> None:
    conditions = [{"type": "PodReadyToStartContainers", **each} for each in ready_to_start]
    assert viewed(job(), {"phase": phase, "conditions": conditions}, nodeName="node0").stage is stage


@pytest.mark.parametrize(("grace", "seconds"), [({"deletionGracePeriodSeconds": 30}, 0), ({}, 30)])
def test_a_pod_is_deleted_when_its_grace_begins(grace: dict[str, int], seconds: int) -> None:
    ends = {"deletionTimestamp": "2026-01-01T00:00:30Z", **grace}
    assert viewed(job(), {}, ends).deleted_at == moment(THEN) + timedelta(seconds=seconds)
