"""A node: containerd, kubelet and kube-proxy in their own PID, mount and network namespaces and their own cgroup.

All hangs on the first process of the PID namespace. When it ends, the kernel ends everything in it and takes mounts and
links away, as a power cut would; what a real machine keeps on its disk is kept.
"""

import json
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.cluster import cgroups, network, processes
from dev.cluster.processes import CommandError, run, wait_for
from dev.cluster.settings import (
    HOST_ADDRESS,
    PAUSE_IMAGE,
    POD_RANGE,
    REGISTRY_ADDRESS,
    REGISTRY_NAME,
    Layout,
    node_address,
    node_name,
)

# A node's own disk, mounted over these directories. What else is in containerd's is of a boot, or of pods that are
# gone.
_DISK = {"kubelet": "/var/lib/kubelet", "cni": "/var/lib/cni", "log": "/var/log"}
_IMAGE_STORE = (
    "io.containerd.content.v1.content",
    "io.containerd.metadata.v1.bolt",
    "io.containerd.snapshotter.v1.overlayfs",
)
MOUNT_POINTS = ("/var/lib/kubelet", "/var/lib/cni", "/var/lib/containerd")


@dataclass(frozen=True)
class Node:
    number: int
    layout: Layout

    @property
    def name(self) -> str:
        return node_name(self.number)

    @property
    def directory(self) -> Path:
        return self.layout.state / "nodes" / self.name

    @property
    def image_store(self) -> Path:
        return self.layout.cache / "nodes" / self.name

    @property
    def _records(self) -> Path:
        return self.directory / "processes"

    @property
    def _cgroup(self) -> str:
        return f"{cgroups.PREFIX}{self.name}"

    @property
    def alive(self) -> bool:
        return all(processes.is_alive(self._records, name) for name in ("init", "containerd", "kubelet", "kube-proxy"))

    def boot(self) -> None:
        """Namespaces, network and containerd; the kubelet is started apart, once the API server has its credentials."""
        cgroups.remove(self._cgroup)
        cgroups.create(self._cgroup)
        for name in _DISK:
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self.image_store.mkdir(parents=True, exist_ok=True)
        for mount_point in MOUNT_POINTS:
            Path(mount_point).mkdir(parents=True, exist_ok=True)
        namespaces = [
            "--pid",
            "--fork",
            "--kill-child=SIGKILL",
            "--mount-proc",
            "--mount",
            "--propagation",
            "private",
            "--net",
        ]
        self._start("init", ["unshare", *namespaces, str(self.layout.bin / "pause")])
        network.connect(self.number, self._init())
        mounts = [f"mount -t tmpfs tmpfs /run && mount --bind {self.image_store} /var/lib/containerd"]
        mounts += [f"mount --bind {self.directory / name} {target}" for name, target in _DISK.items()]
        self.run(["sh", "-c", " && ".join(mounts)])
        self._write_configuration()
        self._start("containerd", [*self._enter(), "containerd", "--config", str(self.directory / "containerd.toml")])

    def forget_containers(self) -> None:
        """Of the last cluster's life only the images are kept. For a node that is not booted."""
        if not self.image_store.exists():
            return
        for entry in self.image_store.iterdir():
            if entry.name not in _IMAGE_STORE:
                shutil.rmtree(entry)
        metadata = self.image_store / "io.containerd.metadata.v1.bolt" / "meta.db"
        if metadata.exists():
            run([str(self.layout.bin / "forget"), str(metadata)])

    def start_kubelet(self) -> None:
        log = self.directory / "containerd.log"
        socket = Path(f"/proc/{self._init()}/root/run/containerd/containerd.sock")
        wait_for(f"containerd on {self.name}", socket.exists, seconds=30, log=log)
        self.import_image(self.layout.state / "pause.tar")
        kubelet = [f"--kubeconfig={self.layout.kubeconfig(self.name)}", f"--config={self.directory / 'kubelet.json'}"]
        kubelet += [f"--hostname-override={self.name}", f"--node-ip={node_address(self.number)}"]
        self._start("kubelet", [*self._enter(), "kubelet", *kubelet])
        proxy = [f"--kubeconfig={self.layout.kubeconfig('kube-proxy')}", f"--hostname-override={self.name}"]
        proxy += ["--proxy-mode=iptables", f"--cluster-cidr={POD_RANGE}"]
        # The limits of connection tracking belong to the whole machine.
        proxy += [
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        ]
        self._start("kube-proxy", [*self._enter(), "kube-proxy", *proxy])

    def kill(self) -> None:
        """A power cut."""
        cgroups.remove(self._cgroup)

    def run(self, command: Sequence[str], *, timeout: float = 120) -> str:
        """What a command prints that runs on the node: with its processes, mounts and network."""
        return run([*self._enter(), *command], timeout=timeout, env=self._environment())

    def ctr(self, *arguments: str, timeout: float = 600) -> str:
        return self.run(["ctr", "--namespace", "k8s.io", *arguments], timeout=timeout)

    def import_image(self, archive: Path) -> None:
        self.ctr("images", "import", str(archive))

    def pull_image(self, name: str) -> None:
        self.ctr("images", "pull", "--hosts-dir", str(self.directory / "certs.d"), name, timeout=1800)

    def keep_images(self, repository: str, kept: Collection[str]) -> None:
        """An image has several names: by tag, by digest, and the one that the kubelet knows it by."""
        rows = [line.split()[:3] for line in self.ctr("images", "ls").splitlines()[1:]]
        tags = {name: digest for name, _, digest in rows if name.startswith(f"{repository}:")}
        used = {digest for name, digest in tags.items() if name.rpartition(":")[2] in kept}
        old = [name for name, _, digest in rows if digest in set(tags.values()) - used]
        if old:
            self.ctr("images", "rm", *old)

    def container_pids(self) -> dict[str, int]:
        """Container id → its first process, as numbered on the node."""
        rows = [line.split() for line in self.ctr("tasks", "list").splitlines()[1:]]
        return {row[0]: int(row[1]) for row in rows if row[2] == "RUNNING"}

    def _init(self) -> int:
        """The first process of the PID namespace, as the machine numbers it: the only child of `unshare`."""
        parent = processes.recorded(self._records, "init")
        if parent is None or not parent.alive:
            raise CommandError(f"{self.name} is down")
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        wait_for(f"the first process of {self.name}", lambda: bool(children.read_text().split()), seconds=5, every=0.01)
        first = int(children.read_text().split()[0])
        # Until it executes, it may not have mounted its /proc.
        wait_for(
            f"the namespaces of {self.name}",
            lambda: Path(f"/proc/{first}/cmdline").read_text().split("\0")[0].endswith("/pause"),
            seconds=5,
            every=0.01,
        )
        return first

    def _enter(self) -> list[str]:
        return ["nsenter", "--target", str(self._init()), "--pid", "--mount", "--net", "--"]

    def _environment(self) -> dict[str, str]:
        return {"PATH": f"{self.layout.bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

    def _start(self, name: str, command: Sequence[str]) -> None:
        log = self.directory / f"{name}.log"
        processes.start(name, command, records=self._records, log=log, cgroup=self._cgroup, env=self._environment())

    def _write_configuration(self) -> None:
        hosts = self.directory / "certs.d" / REGISTRY_NAME
        hosts.mkdir(parents=True, exist_ok=True)
        (hosts / "hosts.toml").write_text(f'server = "http://{REGISTRY_ADDRESS}"\n')
        cni = self.directory / "net.d"
        cni.mkdir(exist_ok=True)
        (cni / "10-pods.conflist").write_text(json.dumps(network.pod_network(self.number)))
        (self.directory / "containerd.toml").write_text(_containerd(self.directory))
        (self.directory / "resolv.conf").write_text(f"nameserver {HOST_ADDRESS}\n")
        (self.directory / "kubelet.json").write_text(json.dumps(_kubelet(self)))


def _containerd(directory: Path) -> str:
    # oom_score: the machine may be a container that must not make its processes less likely to be killed.
    return f"""version = 3
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  max_container_log_line_size = 262144
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{directory}/net.d"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        SystemdCgroup = false
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE_IMAGE}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{directory}/certs.d"
"""


def _kubelet(node: Node) -> dict[str, object]:
    authority = {
        "x509": {"clientCAFile": str(node.layout.pki / "ca.crt")},
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True},
    }
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": authority,
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [HOST_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(node.directory / "resolv.conf"),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "volumePluginDir": str(node.directory / "volume-plugins"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroups.PREFIX}{node.name}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "featureGates": {"KubeletInUserNamespace": True},  # tolerates sysctls and OOM scores that it may not set
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "imageGCHighThresholdPercent": 100,  # never: images are to stay
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "serializeImagePulls": False,
        "nodeLeaseDurationSeconds": 8,  # renewed every 2 s, to go with the short monitoring grace period
        "syncFrequency": "10s",
    }


def remove_mount_points() -> None:
    """The machine's own directories under the nodes' disks, where they are empty."""
    for mount_point in MOUNT_POINTS:
        if Path(mount_point).is_dir() and not any(Path(mount_point).iterdir()):
            Path(mount_point).rmdir()
