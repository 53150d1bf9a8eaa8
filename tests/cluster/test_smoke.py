"""The cluster does what the operator's tests need of one."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from dev.cluster import Cluster, cgroups
from dev.cluster.images import static_image
from dev.cluster.settings import PROBE_IMAGE


def wait(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + 3 * seconds  # on a busy machine
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def pod(name: str, node: str, *arguments: str, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "probe", "image": PROBE_IMAGE, "args": list(arguments)}
    container["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    selector = {"kubernetes.io/hostname": node}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "hostname": name,
            "subdomain": "gang",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": selector,
            "containers": [container],
            **spec,
        },
    }


class Namespace:
    """A namespace of one test, with short cuts to what is in it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("--namespace", self.name, *arguments, stdin=stdin)

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def phase(self, name: str) -> str:
        return self.kubectl("get", "pod", name, "-o", "jsonpath={.status.phase}")

    def output(self, name: str) -> str:
        """What a pod printed that ends well."""
        wait(lambda: self.phase(name) in ("Succeeded", "Failed"), 30)
        log = self.kubectl("logs", name)
        assert self.phase(name) == "Succeeded", log
        return log


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[Namespace]:
    cluster.load_image(str(static_image(cluster.layout, "probe", PROBE_IMAGE)))
    name = f"smoke-{time.time_ns() % 10**9}"
    cluster.kubectl("create", "namespace", name)
    wait(lambda: cluster.api.found(f"/api/v1/namespaces/{name}/serviceaccounts/default"), 10)
    yield Namespace(cluster, name)
    cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="module")
def gang(namespace: Namespace) -> Namespace:
    """Two serving pods on two nodes, named by a headless Service."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "gang"},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app": "gang"},
            "ports": [{"port": 8080}],
        },
    }
    pods = [pod("first", "node0", "serve"), pod("second", "node1", "serve")]
    for member in pods:
        member["metadata"]["labels"] = {"app": "gang"}
    namespace.apply(service, *pods)
    wait(lambda: namespace.phase("first") == namespace.phase("second") == "Running", 30)
    return namespace


def node_ready(cluster: Cluster, name: str) -> str:
    conditions = cluster.api.request("GET", f"/api/v1/nodes/{name}")["status"]["conditions"]
    return next(condition["status"] for condition in conditions if condition["type"] == "Ready")


def accelerators(cluster: Cluster, name: str) -> str:
    return cluster.api.request("GET", f"/api/v1/nodes/{name}")["status"]["allocatable"]["nvidia.com/gpu"]


def test_two_nodes_are_ready_with_eight_accelerators_each(cluster: Cluster) -> None:
    assert {"node0", "node1"} <= set(cluster.nodes)
    for name in ("node0", "node1"):
        assert (node_ready(cluster, name), accelerators(cluster, name)) == ("True", "8")


def test_up_of_a_running_cluster_starts_nothing(cluster: Cluster) -> None:
    before = {path: path.read_text() for path in cluster.layout.state.rglob("processes/*.json")}
    cluster.up(nodes=2)
    assert {path: path.read_text() for path in cluster.layout.state.rglob("processes/*.json")} == before


def test_pods_on_two_nodes_find_each_other_by_name(gang: Namespace) -> None:
    answers: dict[str, str] = {}
    for name, node, url in (
        ("to-second", "node0", "http://second.gang:8080"),
        ("to-first", "node1", "http://first.gang:8080"),
    ):
        gang.apply(pod(name, node, "get", url))
    for name in ("to-second", "to-first"):
        answers[name] = gang.output(name)
        address = gang.kubectl("get", "pod", name, "-o", "jsonpath={.status.podIP}")
        assert f"saw {address}" in answers[name], "the server sees the pod's own address"
    assert "second saw" in answers["to-second"]
    assert "first saw" in answers["to-first"]


def test_an_unknown_name_does_not_exist(gang: Namespace) -> None:
    gang.apply(pod("lost", "node0", "get", "http://nobody.gang:8080"))
    wait(lambda: gang.phase("lost") == "Failed", 40)
    assert "no such host" in gang.kubectl("logs", "lost")


def test_logs_exec_and_port_forward(gang: Namespace) -> None:
    assert gang.kubectl("logs", "first").strip() == "serving as first"
    assert "second saw" in gang.kubectl("exec", "first", "--", "/probe", "get", "http://second.gang:8080")
    command = [str(gang.cluster.bin / "kubectl"), "--kubeconfig", str(gang.cluster.kubeconfig), "-n", gang.name]
    with subprocess.Popen(
        [*command, "port-forward", "pod/second", ":8080"], stdout=subprocess.PIPE, text=True
    ) as forward:
        assert forward.stdout
        port = forward.stdout.readline().split("->")[0].rpartition(":")[2].strip()
        told = subprocess.run(
            [gang.cluster.bin / "probe", "get", f"http://127.0.0.1:{port}"], capture_output=True, text=True, check=False
        )
        forward.terminate()
    assert "second saw" in told.stdout


def test_a_pod_reaches_the_api_server_through_the_service_with_its_token(namespace: Namespace) -> None:
    namespace.apply(pod("asks", "node1", "get", "https://kubernetes.default.svc/api/v1/nodes"))
    assert "system:serviceaccount:" in namespace.output("asks"), "refused, by the name of its service account"


def test_a_container_that_is_killed_from_its_node_fails_its_pod(namespace: Namespace) -> None:
    namespace.apply(pod("victim", "node0", "serve"))
    wait(lambda: namespace.phase("victim") == "Running", 30)
    status = json.loads(namespace.kubectl("get", "pod", "victim", "-o", "json"))["status"]
    container = status["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    pid = namespace.cluster.container_pids("node0")[container]
    namespace.cluster.exec_on_node("node0", ["sh", "-c", f"kill -9 {pid}"])
    wait(lambda: namespace.phase("victim") == "Failed", 20)


def test_the_audit_log_counts_a_users_writes(cluster: Cluster, namespace: Namespace) -> None:
    since = datetime.now(UTC).isoformat()
    for name in ("one", "two"):
        namespace.kubectl("create", "configmap", name)
    namespace.kubectl("get", "configmaps")
    namespace.kubectl("delete", "configmap", "one")
    events = [event for event in cluster.audit_events(user="admin", since=since) if event.namespace == namespace.name]
    writes = [("create", "one", 201), ("create", "two", 201), ("delete", "one", 200)]
    assert [(event.verb, event.name, event.code) for event in events if event.resource == "configmaps"] == writes


def test_a_simulated_node_runs_and_deletes_pods_at_once(cluster: Cluster, namespace: Namespace) -> None:
    names = cluster.kwok(nodes=2)
    assert names == ["kwok-0", "kwok-1"]
    tolerations = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]
    namespace.apply(*(pod(f"simulated-{number}", name, tolerations=tolerations) for number, name in enumerate(names)))
    wait(lambda: {namespace.phase(f"simulated-{number}") for number in range(2)} == {"Running"}, 20)
    namespace.kubectl("delete", "pod", "simulated-0", "--timeout=60s")
    cluster.kwok_stop()
    assert set(cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()) == set(
        cluster.nodes
    )


@pytest.mark.disrupts
def test_a_disconnected_node_is_not_ready_and_its_pods_run_on(cluster: Cluster, gang: Namespace) -> None:
    uid = gang.kubectl("get", "pod", "second", "-o", "jsonpath={.status.containerStatuses[0].containerID}")
    running = cluster.container_pids("node1")[uid.removeprefix("containerd://")]
    cluster.disconnect_node("node1")
    try:
        wait(lambda: node_ready(cluster, "node1") == "Unknown", 40)
    finally:
        cluster.connect_node("node1")
    wait(lambda: node_ready(cluster, "node1") == "True", 30)
    assert cluster.container_pids("node1")[uid.removeprefix("containerd://")] == running


@pytest.mark.disrupts
def test_a_killed_node_is_not_ready_and_comes_back(cluster: Cluster, gang: Namespace) -> None:
    cluster.kill_node("node1")
    assert cgroups.members(f"{cgroups.PREFIX}node1") == set()
    wait(lambda: node_ready(cluster, "node1") == "Unknown", 40)
    cluster.start_node("node1")
    assert (node_ready(cluster, "node1"), accelerators(cluster, "node1")) == ("True", "8")
    wait(lambda: gang.phase("second") == "Failed", 30)  # as after any power cut: its containers have ended
    gang.apply(pod("after", "node1", "get", "http://first.gang:8080"))
    assert "first saw" in gang.output("after")
    assert accelerators(cluster, "node1") == "8"
