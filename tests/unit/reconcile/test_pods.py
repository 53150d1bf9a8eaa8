"""What is read of a pod, whatever else runs in it."""

from typing import Any

import pytest

from deepspeed_operator.plan.world import world_of
from deepspeed_operator.reconcile.pods import moment, pod_view
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
    pod = Attempt(given, 1, world_of(given.spec), None, INSTALLATION).pod(0)
    pod["metadata"] |= {"uid": "pod-1", "resourceVersion": "1"}
    pod["status"] = {
        "phase": "Running",
        "conditions": [{"type": "Ready", **condition}],
        "containerStatuses": [
            {"name": "fetch", "ready": False, "state": ENDED},
            {"name": "trainer", "ready": trainer_ready, "state": RUNS},
        ],
    }
    assert pod_view(pod, moment(THEN)).ready is ready
