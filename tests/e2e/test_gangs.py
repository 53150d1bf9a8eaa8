"""Jobs whose pods another scheduler places together, by its real kind of PodGroup on the real API server.

The scheduler itself is not there: the test binds the pods to nodes, as it would.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dev.cluster.cluster import Cluster
from tests.e2e.jobs import ranks, script
from tests.e2e.kube import Json, Namespace, eventually

CRDS = Path(__file__).parent / "crds"


class Scheduler(NamedTuple):
    """A scheduler as a test knows it; by `member`, in that part of its metadata, a pod is in a PodGroup."""

    gang: str
    version: str
    name: str
    part: str
    member: str


SCHEDULERS = [
    Scheduler("Volcano", "scheduling.volcano.sh/v1beta1", "volcano", "annotations", "scheduling.k8s.io/group-name"),
    Scheduler(
        *("Coscheduling", "scheduling.x-k8s.io/v1alpha1", "scheduler-plugins-scheduler"),
        *("labels", "scheduling.x-k8s.io/pod-group"),
    ),
    Scheduler("KAI", "scheduling.run.ai/v2alpha2", "kai-scheduler", "annotations", "pod-group-name"),
]


@pytest.fixture(params=SCHEDULERS, ids=lambda each: each.gang)
def scheduler(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Scheduler]:
    """A scheduler of whose kind the API server knows nothing yet."""
    found: Scheduler = request.param
    path = CRDS / f"{found.gang.lower()}.yaml"
    cluster.kubectl("delete", "--ignore-not-found", "--wait", "-f", str(path))
    yield found
    cluster.kubectl("delete", "--ignore-not-found", "--wait", "-f", str(path))


def test_a_gang_has_its_pod_group_before_its_pods_and_none_is_left(
    make_namespace: Callable[..., Namespace], scheduler: Scheduler, plain: str, cluster: Cluster
) -> None:
    namespace = make_namespace("gangs")
    namespace.config_map("rank", script("rank.py"))
    brief = {"ttlSecondsAfterFinished": 0}
    namespace.apply(ranks("a", plain, "sleep=1", scheduling={"gang": scheduler.gang}, lifecycle=brief))
    refused = namespace.wait("a", lambda job: job.says(f"the API server has no PodGroup of {scheduler.version}"))
    assert refused.reason("Reconciling") == "PodsRefused"
    assert namespace.pods("a") == []
    cluster.kubectl("apply", "--server-side", "-f", str(CRDS / f"{scheduler.gang.lower()}.yaml"))
    pods = eventually(lambda: two(namespace.pods("a")), lambda: namespace.report("a"), 120)
    (group,) = pod_groups(namespace, scheduler)
    assert group["spec"]["minMember"] == 2
    assert {pod["metadata"][scheduler.part][scheduler.member] for pod in pods} == {group["metadata"]["name"]}
    assert {pod["spec"]["schedulerName"] for pod in pods} == {scheduler.name}
    for node, pod in enumerate(pods):
        bind(namespace, pod, f"node{node}")
    assert namespace.completed("a").run["gang"] == scheduler.gang
    eventually(lambda: pod_groups(namespace, scheduler) == [], "no PodGroup is left", 30)


def two(pods: list[Json]) -> list[Json] | None:
    return pods if len(pods) == 2 else None


def bind(namespace: Namespace, pod: Json, node: str) -> None:
    name = pod["metadata"]["name"]
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    path = f"/api/v1/namespaces/{namespace.name}/pods/{name}/binding"
    namespace.cluster.api.request("POST", path, binding)


def pod_groups(namespace: Namespace, scheduler: Scheduler) -> list[Json]:
    path = f"/apis/{scheduler.version}/namespaces/{namespace.name}/podgroups"
    found: list[Json] = namespace.cluster.api.request("GET", path)["items"]
    return found
