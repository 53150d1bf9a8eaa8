"""What is done to a job that trains, and what it may cost."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.survival.scene import Scene, daemon, restart_daemon, until_ready

FIRST = (1, 1)


@dataclass(frozen=True)
class Fault:
    """`cost`: how many restarts it may cost. `after`: tidies the cluster up. `outcome`: None where the job goes, too.

    `index`: of the pod that it is about; None for one that is not on the operator's node.
    """

    do: Callable[[Scene], object]
    cost: int = 1
    after: Callable[[Scene], object] = id
    outcome: str | None = "Complete"
    index: int | None = 1
    seconds: float = 120  # in which the job comes to its end


def again_during_the_restart(scene: Scene) -> None:
    scene.kill_rank(signal.SIGKILL)
    scene.wait_for_life(FIRST)
    scene.kill_rank(signal.SIGKILL, 0)


def both(scene: Scene) -> None:
    scene.kill_rank(signal.SIGKILL, 0)
    scene.kill_rank(signal.SIGKILL, 1)


def with_child(kind: str) -> Callable[[Scene], None]:
    def delete(scene: Scene) -> None:
        scene.delete_pod()
        scene.delete_child(kind)

    return delete


def without_operator(scene: Scene) -> None:
    scene.operator.scale(0)
    scene.kill_rank(signal.SIGKILL)
    scene.wait_for_life(FIRST)
    scene.operator.scale(1)


def without_etcd(scene: Scene) -> None:
    pid = daemon(scene.cluster, "etcd")
    scene.kill_rank(signal.SIGKILL)
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(30)
    finally:
        os.kill(pid, signal.SIGCONT)
    until_ready(scene.cluster)


def without_api_server(scene: Scene) -> None:
    scene.kill_rank(signal.SIGKILL)
    restart_daemon(scene.cluster, "kube-apiserver", 5)


def back_after_a_minute(scene: Scene) -> None:
    node = scene.node
    scene.cluster.kill_node(node)
    time.sleep(60)
    scene.cluster.start_node(node)


def delete_namespace(scene: Scene) -> None:
    scene.cluster.kubectl("delete", "namespace", scene.namespace.name, "--wait=false")


def of_pod(what: str, index: int) -> dict[str, Fault]:
    """Faults of one pod of a job, in words that name it."""
    graceless = ("--grace-period=0", "--force")
    faults: dict[str, Callable[[Scene], object]] = {
        "rank killed, signal 9": lambda scene: scene.kill_rank(signal.SIGKILL),
        "rank killed, signal 11": lambda scene: scene.kill_rank(signal.SIGSEGV),
        "rank killed, signal 6": lambda scene: scene.kill_rank(signal.SIGABRT),
        "agent killed": Scene.kill_agent,
        "pod deleted": Scene.delete_pod,
        "pod deleted without grace": lambda scene: scene.delete_pod(*graceless),
        "pod evicted through the API": Scene.evict,
        "container out of memory": Scene.allocate,
    }
    return {f"{name}{what}": Fault(do, index=index) for name, do in faults.items()}


# Each costs its own job alone: they are tried side by side.
OF_A_JOB = {
    **of_pod("", 1),
    **of_pod(" (rank 0's)", 0),
    "two ranks killed at once": Fault(both, 2),
    "rank killed during the restart of another": Fault(again_during_the_restart, 2),
    "ConfigMap deleted during a restart": Fault(with_child("configmaps"), seconds=240),
    "Service deleted during a restart": Fault(with_child("services")),
    "EndpointSlice deleted during a restart": Fault(with_child("endpointslices")),
    "namespace deleted": Fault(delete_namespace, 0, outcome=None),
}
# These are everybody's: they are tried one after the other.
OF_THE_CLUSTER = {
    "node drained": Fault(Scene.drain, after=lambda scene: scene.cluster.kubectl("uncordon", *scene.cluster.nodes)),
    "operator away during a restart": Fault(without_operator),
    "API server killed during a restart, back after 5 s": Fault(without_api_server),
    "etcd stopped for 30 s during a restart": Fault(without_etcd, seconds=180),
    "node's power cut, back after 60 s": Fault(back_after_a_minute, index=None, seconds=300),
    "node's power cut for good": Fault(
        lambda scene: scene.cluster.kill_node(scene.node),
        after=Scene.start_nodes,
        index=None,
        seconds=300,
    ),
    "node cut from the network, its pod goes on": Fault(
        lambda scene: scene.cluster.disconnect_node(scene.node),
        after=lambda scene: [scene.cluster.connect_node(node) for node in scene.cluster.nodes],
        index=None,
        seconds=300,
    ),
}
FAULTS = {**OF_A_JOB, **OF_THE_CLUSTER}
