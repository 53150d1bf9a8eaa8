"""Names, addresses and directories that every part of the cluster agrees on."""

import os
from dataclasses import dataclass
from pathlib import Path

KUBERNETES_VERSION = "v1.36.3"
BRIDGE = "dsj0"
HOST_ADDRESS = "10.99.0.1"
API_SERVER = f"https://{HOST_ADDRESS}:6443"
SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
POD_RANGE = "10.244.0.0/16"
REGISTRY_ADDRESS = f"{HOST_ADDRESS}:5000"
REGISTRY_NAME = "registry.local:5000"
PAUSE_IMAGE = "cluster.local/pause:1"
PROBE_IMAGE = "cluster.local/probe:1"
ACCELERATOR = "nvidia.com/gpu"
# Tests that take all of another kind keep nobody beside them waiting.
OTHER_ACCELERATORS = ("amd.com/gpu", "habana.ai/gaudi")
ACCELERATORS_PER_NODE = "8"
# Tokens and routes are made for this many nodes at the start, so that one can be added to a running cluster.
MAX_NODES = 8

CACHE = Path(os.environ.get("DSJ_CACHE", "/var/cache/deepspeed-operator"))
# Not under /run: a node mounts its own /run over the machine's.
STATE = Path("/var/lib/deepspeed-operator-cluster")
LOCK = Path("/run/lock/deepspeed-operator-cluster.lock")


@dataclass(frozen=True)
class Layout:
    """Where one cluster keeps its things: `state` is thrown away when it goes down, `cache` stays."""

    state: Path
    cache: Path

    @property
    def bin(self) -> Path:
        return self.cache / "bin" / "current"

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def processes(self) -> Path:
        return self.state / "processes"

    @property
    def registry(self) -> Path:
        return self.cache / "registry"

    @property
    def audit_log(self) -> Path:
        return self.state / "audit.log"

    def kubeconfig(self, user: str) -> Path:
        return self.state / f"{user}.kubeconfig"


def node_name(number: int) -> str:
    return f"node{number}"


def node_address(number: int) -> str:
    return f"10.99.0.{10 + number}"


def pod_range(number: int) -> str:
    return f"10.244.{number}.0/24"
