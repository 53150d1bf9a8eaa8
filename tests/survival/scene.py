"""A job of two pods that trains on the cluster, what is done to it, and what its ranks have written of it."""

import json
import os
import signal
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from dev.cluster import control_plane
from dev.cluster.cluster import Cluster
from tests.e2e import processes
from tests.e2e.installation import Operator
from tests.e2e.jobs import ranks
from tests.e2e.kube import CORE, Json, Namespace, eventually
from tests.faults.replica import processes_of

STEPS = 60
RUNS_FOR = 4  # steps, before something is done
Life = tuple[int, int]  # attempt and round


@dataclass(frozen=True)
class Line:
    """One of the journal."""

    at: float
    life: Life
    rank: int
    what: str


@dataclass(frozen=True)
class Scene:
    """The job `name`; `index` is the pod that the fault is about."""

    namespace: Namespace
    operator: Operator
    name: str
    shared: Path
    index: int

    @property
    def cluster(self) -> Cluster:
        return self.namespace.cluster

    def begin(self, image: str) -> None:
        """Apply the job, and wait until all of its ranks make steps."""
        self.shared.mkdir(mode=0o777)
        self.shared.chmod(0o777)
        volume = {"name": "shared", "hostPath": {"path": str(self.shared)}}
        resources = {"limits": {"nvidia.com/gpu": 0, "memory": "256Mi"}, "requests": {"cpu": "10m"}}
        trainer = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}], "resources": resources}
        training = {"script": "survivor.py", "args": [str(STEPS)]}
        policy = {"backoffSeconds": 1, "maxRestarts": 3}
        pod = {"volumes": [volume]}
        job = ranks(self.name, image, training=training, trainer=trainer, pod=pod, failurePolicy=policy)
        self.namespace.apply(job)
        eventually(
            lambda: {line.rank for line in self.lines() if line.what == f"step {RUNS_FOR}"} == {0, 1},
            lambda: self.namespace.report(self.name),
            120,
        )

    def lines(self) -> list[Line]:
        journal = self.shared / "journal"
        found: list[Line] = []
        for line in journal.read_text().splitlines() if journal.exists() else []:
            at, life, rank, what = line.split(" ", 3)
            attempt, _, number = life.partition(".")
            found.append(Line(float(at), (int(attempt), int(number)), int(rank), what))
        return found

    def pod(self, index: int | None = None) -> Json:
        """The pod that has this index now."""
        index = self.index if index is None else index
        label = "deepspeed-operator.dev/index"
        of_index = (pod for pod in self.namespace.pods(self.name) if pod["metadata"]["labels"][label] == str(index))
        return max(of_index, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    @property
    def node(self) -> str:
        return self.pod()["spec"]["nodeName"]

    def delete_pod(self, *options: str) -> None:
        pod = self.pod()["metadata"]["name"]
        self.cluster.kubectl("delete", "-n", self.namespace.name, "pod", pod, "--wait=false", *options)

    def delete_child(self, kind: str) -> None:
        for name in (each for each in self.namespace.children()[kind] if each.startswith(self.name)):
            self.cluster.kubectl("delete", "-n", self.namespace.name, kind, name, "--wait=false")

    def evict(self) -> None:
        pod = self.pod()["metadata"]["name"]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        self.cluster.api.request("POST", f"{CORE}/namespaces/{self.namespace.name}/pods/{pod}/eviction", eviction)

    def drain(self) -> None:
        selector = f"--pod-selector=deepspeed-operator.dev/job-name={self.name}"
        self.cluster.kubectl("drain", self.node, selector, "--delete-emptydir-data", "--ignore-daemonsets")

    def kill_rank(self, number: signal.Signals, index: int | None = None) -> None:
        agent = processes.first_process(self.pod(index), "trainer")
        programs = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes_of(agent)[1:]}
        os.kill(next(pid for pid, program in programs.items() if b"survivor.py" in program), number)

    def kill_agent(self) -> None:
        processes.kill(self.pod(), "trainer")

    def allocate(self) -> None:
        (self.shared / f"allocate-{self.index}").touch()

    def start_nodes(self) -> None:
        """Start those that are down."""
        alive: dict[str, bool] = self.cluster.status()["nodes"]
        for node in (name for name, lives in alive.items() if not lives):
            self.cluster.start_node(node)

    def off_the_operators_node(self) -> Self:
        """The same scene, about a pod that the operator does not share a node with."""
        node = self.operator.leader()["spec"]["nodeName"]
        return replace(self, index=next(index for index in (1, 0) if self.pod(index)["spec"]["nodeName"] != node))

    def wait_for_life(self, after: Life) -> Life:
        """The next one of which a rank has started."""
        return eventually(
            lambda: next((line.life for line in self.lines() if line.life > after), None), "no rank starts again", 120
        )

    def orphans(self) -> list[int]:
        """Processes of the job that are left on the nodes."""
        mark = f"DEEPSPEED_OPERATOR_POD={self.name}-".encode()
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if mark in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    continue  # it has ended meanwhile
        return found


def restart_daemon(cluster: Cluster, name: str, away: float) -> None:
    """Kill a process of the control plane, and start it again with the same command after so many seconds."""
    pid = daemon(cluster, name)
    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    os.kill(pid, signal.SIGKILL)
    time.sleep(away)
    control_plane.start_daemon(cluster.layout, name, command)
    until_ready(cluster)


def until_ready(cluster: Cluster) -> None:
    """Wait until the API server answers."""
    eventually(lambda: cluster.api.found("/readyz"), "the API server does not come up", 60)


def daemon(cluster: Cluster, name: str) -> int:
    """The process of the control plane that is so called."""
    return json.loads((cluster.layout.processes / f"{name}.json").read_text())["pid"]


def by_life(lines: list[Line]) -> dict[Life, list[Line]]:
    """The lines of each life, in the order of time."""
    lives: dict[Life, list[Line]] = defaultdict(list)
    for line in sorted(lines, key=lambda each: each.at):
        lives[line.life].append(line)
    return dict(sorted(lives.items()))
