"""Jobs in a queue with a topology: Kueue assigns its domains, and says of each pod, which waits for it, where to go."""

from typing import Any, Final

import pytest

from deepspeed_operator.api.status import BlamedNode, ConditionType
from tests.unit.reconcile.simulation import Simulation, job
from tests.unit.reconcile.test_queue import FLAVORS, NAME, QUEUED, admit

RACK: Final = "cloud.provider.com/topology-rack"
REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
UNCONSTRAINED: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
GATE: Final = {"name": "kueue.x-k8s.io/topology"}
ASSIGNMENT: Final = {
    "levels": [RACK, "kubernetes.io/hostname"],
    "slices": [
        {
            "domainCount": 2,
            "podCounts": {"universal": 1},
            "valuesPerLevel": [{"universal": "r1"}, {"individual": {"roots": ["node0", "node1"]}}],
        }
    ],
}


def assigned(simulation: Simulation) -> Simulation:
    """Kueue admits the Workload, and assigns domains to its pods."""
    flavors = {"nvidia.com/gpu": "h100"}
    (asked,) = simulation.workloads[NAME]["spec"]["podSets"]
    assignment = {"name": "ranks", "count": asked["count"], "flavors": flavors, "topologyAssignment": ASSIGNMENT}
    admit(simulation, admission={"clusterQueue": "cq", "podSetAssignments": [assignment]})
    simulation.settle()
    return simulation


def asking(annotations: dict[str, str], **spec: Any) -> Simulation:
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "trainer"}]}}
    simulation = Simulation(job(**QUEUED, template=template, **spec), of_queue=dict(FLAVORS))
    simulation.settle()
    return simulation


@pytest.mark.parametrize(
    ("annotations", "asked"),
    [
        ({REQUIRED: RACK}, {"required": RACK}),
        ({PREFERRED: RACK}, {"preferred": RACK}),
        ({UNCONSTRAINED: "true"}, {"unconstrained": True}),
        ({}, {}),
    ],
)
def test_the_workload_asks_for_the_topology_that_the_template_names(
    annotations: dict[str, str], asked: dict[str, Any]
) -> None:
    simulation = asking(annotations)
    (pod_set,) = simulation.workloads[NAME]["spec"]["podSets"]
    assert pod_set["topologyRequest"] == {"podIndexLabel": "deepspeed-operator.dev/index", **asked}
    for pod in assigned(simulation).created:
        said = pod["metadata"]["annotations"]
        kept = {key: said[key] for key in (REQUIRED, PREFERRED, UNCONSTRAINED) if key in said}
        assert kept == (annotations or {UNCONSTRAINED: "true"}), "by these Kueue knows a pod as one with a topology"


def test_each_pod_waits_until_kueue_has_said_where_it_goes() -> None:
    simulation = assigned(asking({REQUIRED: RACK}))
    for index, pod in enumerate(simulation.created):
        metadata = pod["metadata"]
        assert metadata["annotations"]["kueue.x-k8s.io/workload"] == NAME
        assert metadata["labels"]["kueue.x-k8s.io/podset"] == "ranks"
        assert metadata["labels"]["deepspeed-operator.dev/index"] == str(index)
        assert pod["spec"]["schedulingGates"] == [GATE]
        assert pod["spec"]["nodeSelector"] == {"pool": "h100"}, "the domain is for Kueue to add"
    assert "(kueue.x-k8s.io/topology)" in simulation.condition(ConditionType.READY).message
    simulation.wait(10_000)
    simulation.settle()
    assert simulation.attempt.number == 1, "no deadline counts"
    for index in (0, 1):
        simulation.change(index, gates=())
    simulation.train()


def test_without_a_topology_pods_carry_none_of_it() -> None:
    simulation = asking({})
    admit(simulation)
    simulation.settle()
    for pod in simulation.created:
        carried = {**pod["metadata"]["annotations"], **pod["metadata"]["labels"]}
        assert not [key for key in carried if key.startswith("kueue.x-k8s.io/")]
        assert "schedulingGates" not in pod["spec"]


def test_a_pod_that_takes_the_place_of_a_lost_one_waits_for_its_domain_too() -> None:
    simulation = asking({REQUIRED: RACK}, nodes=3, failurePolicy={"replacementDeadlineSeconds": 300})
    assigned(simulation)
    for index in range(3):
        simulation.change(index, gates=())
    simulation.train()
    simulation.pods.pop("pretrain-1-1")
    simulation.settle()
    (replacement,) = [pod for pod in simulation.created if pod["metadata"]["name"].endswith("-r1")]
    assert replacement["spec"]["schedulingGates"] == [GATE]
    assert replacement["metadata"]["labels"]["deepspeed-operator.dev/index"] == "1"


def test_where_kueue_says_which_nodes_pods_go_to_they_keep_off_none() -> None:
    simulation = asking({REQUIRED: RACK})
    blamed = [BlamedNode(name="node0", times=["2026-01-01T00:00:00Z"] * 2)]
    run = simulation.run.model_copy(update={"blamed_nodes": blamed})
    attempt = simulation.attempt.model_copy(update={"excluded_nodes": ["node0"]})
    status = simulation.job.status.model_copy(update={"run": run, "attempt": attempt})
    simulation.job = simulation.job.model_copy(update={"status": status})
    assigned(simulation)
    assert all("affinity" not in pod["spec"] for pod in simulation.created)
    assert simulation.attempt.excluded_nodes is None
