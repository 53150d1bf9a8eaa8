"""A pod that Kubernetes or a person ends: who did it, as far as Kubernetes says."""

import json
from typing import Any

import pytest

from deepspeed_operator.api.status import Failure
from deepspeed_operator.reconcile.observe.pods import pod_view
from tests.unit.reconcile.simulation import Simulation, agent_says
from tests.unit.reconcile.test_life_of_a_job import running

WORDS = {
    "PreemptionByScheduler": ("Preempted", "was preempted by the scheduler, for a pod of higher priority"),
    "EvictionByEvictionAPI": ("Drained", "was evicted through the API, as by a drain of its node"),
    "DeletionByTaintManager": ("Drained", "was deleted for a taint of its node (NoExecute)"),
    "DeletionByPodGC": ("NodeLost", "was deleted with its node"),
    "TerminationByKubelet": ("Evicted", "was ended by its node's kubelet"),
}


def failure(simulation: Simulation) -> Failure:
    simulation.settle()
    simulation.wait(12)
    simulation.settle()
    assert simulation.job.status.failure is not None
    return simulation.job.status.failure


def vanish(simulation: Simulation, index: int) -> None:
    """The pod is gone, as the cache tells it."""
    pod = simulation.pod(index)
    simulation.pods[pod.name] = pod.last_view()


@pytest.mark.parametrize(("disruption", "told"), WORDS.items())
@pytest.mark.parametrize("gone", [False, True])
def test_who_ended_a_pod_is_told_while_it_is_there_and_once_it_is_gone(
    disruption: str, told: tuple[str, str], gone: bool
) -> None:
    simulation = running()
    simulation.end(1, 143, agent_says(1, None, None, "Terminated"), deleted_at=simulation.now, disruption=disruption)
    if gone:
        vanish(simulation, 1)
    found = failure(simulation)
    assert (found.reason, found.pod, found.node) == (told[0], "pretrain-1-1", "node1")
    assert found.message.startswith(f"pod pretrain-1-1 on node node1 {told[1]}")


def test_a_pod_that_goes_with_a_node_that_does_not_answer_is_lost_with_it() -> None:
    simulation = running()
    simulation.change(1, lost_since=simulation.now, ready=False, disruption="DeletionByTaintManager")
    vanish(simulation, 1)
    found = failure(simulation)
    assert found.reason == "NodeLost"
    assert found.message == "pod pretrain-1-1 on node node1 was deleted since its node does not answer"


def test_a_pod_that_went_by_force_is_told_with_its_node_though_it_left_no_word() -> None:
    simulation = running()
    vanish(simulation, 1)
    found = failure(simulation)
    assert (found.reason, found.pod, found.node) == ("PodDeleted", "pretrain-1-1", "node1")


def test_a_rank_that_failed_in_a_pod_that_is_gone_by_now_is_still_the_cause() -> None:
    simulation = running()
    simulation.end(1, 7, agent_says(1, 1, 7))
    vanish(simulation, 1)
    simulation.end(0, 1, agent_says(0, None, None, "PeerLost"))
    found = failure(simulation)
    assert (found.reason, found.rank, found.exit_code) == ("RankFailed", 1, 7)


def test_devices_that_the_node_calls_unhealthy_are_told_with_the_failure() -> None:
    simulation = running()
    simulation.end(1, 7, agent_says(1, 1, 7), unhealthy=("nvidia.com/gpu GPU-8a3c",))
    message = failure(simulation).message
    assert message.partition("\n")[0].endswith("; its node reports as unhealthy: nvidia.com/gpu GPU-8a3c")
    assert message.endswith("last line of the log")


def test_a_suspended_run_is_not_failed_by_the_pods_that_its_suspension_removed() -> None:
    simulation = running()
    simulation.edit(suspend=True)
    simulation.settle()
    for index in range(2):
        vanish(simulation, index)
    simulation.settle()
    assert simulation.job.status.state == "Suspended"
    simulation.edit(suspend=False)
    simulation.train()
    assert simulation.attempt.number == 2


def test_both_are_read_from_the_pod_as_the_api_server_writes_it() -> None:
    simulation = running()
    body: dict[str, Any] = next(
        json.loads(json.dumps(each)) for each in simulation.created if each["metadata"]["name"] == "pretrain-1-1"
    )
    body["metadata"] |= {"uid": "u", "resourceVersion": "9", "namespace": "ml"}
    body["status"] = {
        "phase": "Running",
        "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API"}
        ],
        "containerStatuses": [
            {
                "name": body["spec"]["containers"][0]["name"],
                "allocatedResourcesStatus": [
                    {
                        "name": "nvidia.com/gpu",
                        "resources": [
                            {"resourceID": "GPU-1", "health": "Healthy"},
                            {"resourceID": "GPU-2", "health": "Unhealthy"},
                        ],
                    }
                ],
            }
        ],
    }
    view = pod_view(body, simulation.now)
    assert (view.disruption, view.unhealthy) == ("EvictionByEvictionAPI", ("nvidia.com/gpu GPU-2",))
