"""The machine's cluster goes down and comes up, by the commands that `make cluster` and `make cluster-down` run.

Last of all tests, since they end the cluster that the others share; it is up again afterwards.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dev.cluster import Cluster, cgroups, processes
from dev.cluster.settings import ACCELERATOR, BRIDGE, POD_RANGE
from dev.images import images
from tests.beside import failed_elsewhere

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "dev.cluster")
IMAGE = "no-python"


@pytest.fixture(scope="module", autouse=True)
def _others_passed(request: pytest.FixtureRequest) -> None:
    if request.session.testsfailed or failed_elsewhere(request.config):
        pytest.skip("the cluster is left to be looked at, as the tests that failed left it")


@pytest.fixture(scope="module")
def image(cluster: Cluster, _others_passed: None) -> str:
    """An image that the nodes have from the registry, and that no `up` brings."""
    name = images.ensure(IMAGE)
    cluster.load_image(name)
    return name


def run(*arguments: str) -> str:
    """What a command of the cluster prints; it must succeed."""
    done = subprocess.run([*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def programs(cluster: Cluster) -> Counter[str]:
    """How many processes of this machine run each of the cluster's own programs."""
    found: Counter[str] = Counter()
    for directory in filter(lambda path: path.name.isdigit(), Path("/proc").iterdir()):
        try:
            if (directory / "exe").readlink().is_relative_to(cluster.layout.cache / "bin"):
                name = (directory / "cmdline").read_text().partition("\0")[0].rpartition("/")[2]
                found[name] += 1
        except OSError:  # it ended while we looked
            continue
    return found


def network() -> str:
    """The machine's links and routes."""
    shown = [subprocess.run(["ip", what], capture_output=True, text=True, check=True) for what in ("link", "route")]
    return "".join(each.stdout for each in shown)


def images_of(cluster: Cluster) -> dict[str, set[str]]:
    listed = ["ctr", "--namespace=k8s.io", "images", "ls", "--quiet"]
    return {node: set(cluster.exec_on_node(node, listed).split()) for node in ("node0", "node1")}


def test_down_leaves_nothing_but_the_cache(cluster: Cluster, image: str) -> None:
    run("down")
    assert not cluster.layout.state.exists()
    assert not programs(cluster).keys() - {"kubectl", "helm"}, "but the commands of whoever used it"
    assert cgroups.existing() == []
    assert str(cluster.layout.state) not in Path("/proc/self/mountinfo").read_text()
    assert BRIDGE not in network()
    assert POD_RANGE.rpartition(".0.0")[0] not in network()


def test_up_succeeds_after_others_that_were_killed_half_way(cluster: Cluster) -> None:
    """At three moments: nothing answers yet; nodes boot; the control plane is whole and no node has joined it."""
    cluster.down()
    nodes = cluster.layout.state / "nodes"
    moments: tuple[Callable[[], bool], ...] = (
        lambda: processes.is_alive(cluster.layout.processes, "etcd"),
        lambda: processes.is_alive(nodes / "node1/processes", "containerd"),
        lambda: processes.is_alive(cluster.layout.processes, "coredns"),
    )
    for reached in moments:
        with subprocess.Popen([*COMMAND, "up"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as up:
            while not reached():
                assert up.poll() is None, up.stdout and up.stdout.read()
                time.sleep(0.005)
            up.kill()
        assert not cluster.running
    run("up", "--nodes", "3")
    assert json.loads(run("status"))["nodes"] == {"node0": True, "node1": True, "node2": True}
    third = cluster.api.request("GET", "/api/v1/nodes/node2")["status"]
    assert {each["type"]: each["status"] for each in third["conditions"]}["Ready"] == "True"
    assert third["allocatable"][ACCELERATOR] == "8"
    running = programs(cluster)
    assert [running[name] for name in ("etcd", "kube-apiserver", "kube-scheduler", "coredns")] == [1] * 4
    assert [running[name] for name in ("containerd", "kubelet", "kube-proxy")] == [3] * 3


def test_images_stay_when_the_cluster_goes_down(
    cluster: Cluster, image: str, record_property: Callable[[str, float], None]
) -> None:
    cluster.up()
    before = images_of(cluster)
    assert all(image in names for names in before.values())
    run("down")
    began = time.monotonic()
    run("up")
    record_property("the cluster up again", time.monotonic() - began)
    after = images_of(cluster)
    assert all(before[node] <= after[node] for node in before)
    pod = [f"--image={image}", "--image-pull-policy=Never", "--restart=Never"]
    where = f"--overrides={json.dumps({'spec': {'nodeName': 'node1'}})}"
    cluster.kubectl("run", "from-an-image-that-stayed", *pod, where, "--", "true")
    ended = "--for=jsonpath={.status.phase}=Succeeded"
    cluster.kubectl("wait", "pod/from-an-image-that-stayed", ended, "--timeout=90s")
    cluster.kubectl("delete", "pod", "from-an-image-that-stayed")
