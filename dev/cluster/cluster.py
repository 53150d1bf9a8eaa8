"""One Kubernetes on one machine: brought up, used by tests, taken down."""

import contextlib
import fcntl
import json
import shutil
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dev.cluster import build, cgroups, control_plane, images, kwok, network, processes
from dev.cluster.api import Api
from dev.cluster.node import Node, remove_mount_points
from dev.cluster.processes import CommandError, run, wait_for
from dev.cluster.settings import (
    ACCELERATOR,
    ACCELERATORS_PER_NODE,
    CACHE,
    LOCK,
    MAX_NODES,
    OTHER_ACCELERATORS,
    PAUSE_IMAGE,
    REGISTRY_NAME,
    STATE,
    Layout,
)


@dataclass(frozen=True)
class AuditEvent:
    """A write that the API server answered."""

    time: str
    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    dry_run: bool  # answered, and nothing was stored


class Cluster:
    """There is one for each machine; a second `up` uses the first one's."""

    def __init__(self, state_dir: Path = STATE, cache: Path = CACHE) -> None:
        self.layout = Layout(state_dir, cache)
        self._api: tuple[int, Api] | None = None

    @property
    def kubeconfig(self) -> Path:
        return self.layout.kubeconfig("admin")

    @property
    def bin(self) -> Path:
        """kubectl, helm, ctr and the rest."""
        return self.layout.bin

    @property
    def api(self) -> Api:
        """As long as it is the same cluster, the same one: each `up` from nothing writes another kubeconfig."""
        written = self.kubeconfig.stat().st_mtime_ns
        if self._api is None or self._api[0] != written:
            self._api = written, Api(self.kubeconfig)
        return self._api[1]

    @property
    def nodes(self) -> list[str]:
        return [node.name for node in self._nodes()]

    @property
    def running(self) -> bool:
        return control_plane.alive(self.layout) and all(node.alive for node in self._nodes())

    def up(self, nodes: int = 2) -> None:
        if not 1 <= nodes <= MAX_NODES:
            raise ValueError(f"a cluster has 1 to {MAX_NODES} nodes, not {nodes}")
        build.install_packages()
        build.build(self.layout)
        with self._lock():
            wanted = [self._node(number) for number in range(nodes)]
            fresh = not control_plane.alive(self.layout)
            if fresh:
                self._clean(spared=images.REGISTRY_CGROUP)
                self._start_control_plane(wanted)
            images.start_registry(self.layout)
            self._join([node for node in wanted if fresh or not node.alive], booted=fresh)
            for node in wanted:  # an earlier `up` may have been killed before it did this
                self._equip(node, datetime.fromtimestamp(0, UTC))
            service_account = "/api/v1/namespaces/default/serviceaccounts/default"
            wait_for("the controllers", lambda: self.api.found(service_account), seconds=30)

    def down(self) -> None:
        """Nothing of the cluster stays but the cache: programs, images, the registry's storage."""
        with self._lock():
            self._clean()
            network.bridge_down()

    def start_registry(self) -> str:
        """For pushing images without a cluster: the address to push to."""
        build.install_packages()
        with self._lock():
            return images.start_registry(self.layout)

    def kill_node(self, name: str) -> None:
        """A power cut: every process of the node ends at once."""
        self._named(name).kill()

    def start_node(self, name: str) -> None:
        with self._lock():
            self._join([self._named(name)])

    def disconnect_node(self, name: str) -> None:
        """Pulls the node's cable; everything on it goes on running."""
        network.set_connected(self._named(name).number, connected=False)

    def connect_node(self, name: str) -> None:
        network.set_connected(self._named(name).number, connected=True)

    def exec_on_node(self, name: str, command: Sequence[str], *, timeout: float = 120) -> str:
        """What a command prints that runs among the node's processes, mounts and network (`ctr` is on the path)."""
        return self._named(name).run(command, timeout=timeout)

    def container_pids(self, name: str) -> dict[str, int]:
        """Container id → process id on the node, of what runs there."""
        return self._named(name).container_pids()

    def load_image(self, name_or_archive: str) -> None:
        """Gives every node an image, so that no pod waits for it: an archive, or a name of the registry's."""
        archive = Path(name_or_archive)
        for node in self._nodes():
            if archive.is_file():
                node.import_image(archive.absolute())
            else:
                node.pull_image(f"{REGISTRY_NAME}/{name_or_archive.removeprefix(f'{REGISTRY_NAME}/')}")

    def keep_images(self, repository: str, kept: Collection[str]) -> None:
        """Takes the registry's other images of this name from the nodes; what runs from one goes on."""
        for node in filter(lambda node: node.alive, self._nodes()):
            with contextlib.suppress(CommandError):
                node.keep_images(f"{REGISTRY_NAME}/{repository}", kept)

    def kwok(self, nodes: int = 1) -> list[str]:
        """Names of simulated nodes, for pods that tolerate the taint `kwok.x-k8s.io/node`."""
        return kwok.start(self.layout, self.api, nodes)

    def kwok_stop(self) -> None:
        kwok.stop(self.layout, self.api)

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 120) -> str:
        return run(
            [str(self.bin / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments], stdin=stdin, timeout=timeout
        )

    def audit_events(self, user: str | None = None, since: str = "") -> list[AuditEvent]:
        """Writes in the order in which they were answered; `since` is a time as in the events (RFC 3339, UTC)."""
        return [event for event in self._audit(since) if event.time >= since and user in (None, event.user)]

    def status(self) -> dict[str, Any]:
        records = {
            path.stem: processes.is_alive(self.layout.processes, path.stem)
            for path in self.layout.processes.glob("*.json")
        }
        return {
            "running": self.running,
            "processes": records,
            "nodes": {node.name: node.alive for node in self._nodes()},
        }

    def _audit(self, since: str) -> Iterator[AuditEvent]:
        """Read what was answered since then, and perhaps more: most of a long log is not parsed."""
        with self.layout.audit_log.open() as lines:
            for line in lines:
                if not line.endswith("\n"):
                    return  # still being written
                if line.partition('"stageTimestamp":"')[2] < since:
                    continue
                event = json.loads(line)
                what = event.get("objectRef", {})
                resource = "/".join(filter(None, (what.get("resource"), what.get("subresource"))))
                yield AuditEvent(
                    time=event["requestReceivedTimestamp"],
                    user=event["user"].get("username", ""),  # none where the server could not tell who asked
                    verb=event["verb"],
                    resource=resource,
                    namespace=what.get("namespace", ""),
                    name=what.get("name", ""),
                    code=event.get("responseStatus", {}).get("code", 0),
                    dry_run="dryRun=" in event["requestURI"],
                )

    def _start_control_plane(self, nodes: Sequence[Node]) -> None:
        self.layout.state.mkdir(parents=True)
        network.bridge_up()
        cgroups.create(control_plane.CGROUP)
        control_plane.issue_credentials(self.layout)
        control_plane.start_api_server(self.layout)
        images.static_image(self.layout, "pause", PAUSE_IMAGE)
        # The API server takes some seconds: meanwhile the nodes boot.
        for node in nodes:
            node.forget_containers()
            node.boot()
        log = self.layout.logs / "kube-apiserver.log"
        wait_for("the API server", lambda: self.api.found("/readyz"), seconds=60, log=log)
        control_plane.start_controllers(self.layout)

    def _join(self, nodes: Sequence[Node], *, booted: bool = False) -> None:
        started = datetime.now(UTC).replace(microsecond=0)
        for node in nodes:
            if not booted:
                node.boot()
            node.start_kubelet()
        for node in nodes:
            self._equip(node, started)

    def _equip(self, node: Node, since: datetime) -> None:
        """Patches the accelerators in: a kubelet keeps them, but sets them to 0 when it registers its node again."""
        path = f"/api/v1/nodes/{node.name}"
        log = node.directory / "kubelet.log"
        wait_for(node.name, lambda: _is_ready(self.api, path, since), seconds=60, log=log)
        resources = dict.fromkeys((ACCELERATOR, *OTHER_ACCELERATORS), ACCELERATORS_PER_NODE)
        if not resources.items() <= self.api.request("GET", path)["status"]["allocatable"].items():
            self.api.request("PATCH", f"{path}/status", {"status": {"capacity": resources, "allocatable": resources}})

    def _clean(self, spared: str = "") -> None:
        """Processes first: with them go the namespaces, and with these the mounts and links of the nodes."""
        for group in cgroups.existing():
            if group != spared:
                cgroups.remove(group)
        if self.layout.state.exists():
            shutil.rmtree(self.layout.state)
        remove_mount_points()

    @contextlib.contextmanager
    def _lock(self) -> Generator[None]:
        """One at a time changes the machine; its only cluster is the one whose directory the lock file names."""
        LOCK.parent.mkdir(parents=True, exist_ok=True)
        with LOCK.open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.seek(0)
            owner = lock.read()
            if owner not in ("", str(self.layout.state)) and control_plane.alive(
                Layout(Path(owner), self.layout.cache)
            ):
                raise CommandError(f"this machine's cluster is already up, with its state in {owner}")
            lock.truncate(0)
            lock.write(str(self.layout.state))
            lock.flush()
            yield

    def _node(self, number: int) -> Node:
        return Node(number, self.layout)

    def _nodes(self) -> list[Node]:
        return [node for node in map(self._node, range(MAX_NODES)) if node.directory.exists()]

    def _named(self, name: str) -> Node:
        for node in self._nodes():
            if node.name == name:
                return node
        raise ValueError(f"{name} is not a node of this cluster: {', '.join(self.nodes)}")


def _is_ready(api: Api, path: str, since: datetime) -> bool:
    """Ready by the word of a kubelet that was started after `since`: what an earlier one said does not count."""
    if not api.found(path):
        return False
    conditions = api.request("GET", path)["status"].get("conditions", [])
    return any(
        condition["type"] == "Ready"
        and condition["status"] == "True"
        and datetime.fromisoformat(condition["lastHeartbeatTime"]) >= since
        for condition in conditions
    )
