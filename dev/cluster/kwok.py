"""Simulated nodes: KWOK says of every pod on them that it runs and is ready, and ends the deleted ones.

Real pods do not tolerate them.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from dev.cluster import control_plane, processes
from dev.cluster.api import Api, ApiError
from dev.cluster.processes import wait_for
from dev.cluster.settings import ACCELERATOR, Layout

TAINT = "kwok.x-k8s.io/node"
LABEL = "type"
_SELECTOR = f"{LABEL}%3Dkwok"
# Few large nodes: each renews a lease of its own through the one client that also speaks for all pods.
ACCELERATORS = 200
_STAGES = Path(__file__).with_name("kwok-stages.yaml")


def start(layout: Layout, api: Api, nodes: int) -> list[str]:
    """Names of the nodes: `nodes` in all, those that exist are kept."""
    if not processes.is_alive(layout.processes, "kwok"):
        selector = f"--manage-nodes-with-label-selector={LABEL}=kwok"
        options = [
            f"--kubeconfig={layout.kubeconfig('kwok')}",
            f"--config={_STAGES}",
            "--manage-all-nodes=false",
            selector,
        ]
        # Renewed every 6 s, twice within the monitoring grace period: a node that blinks takes its pods' readiness.
        options += ["--node-lease-duration-seconds=24", "--cidr=10.245.0.0/16", "--server-address=127.0.0.1:10247"]
        control_plane.start_daemon(layout, "kwok", ["kwok", *options])
    names = [f"kwok-{number}" for number in range(nodes)]
    for name in names:
        _create(api, name)
    log = layout.logs / "kwok.log"
    wait_for("the simulated nodes", lambda: set(names) <= _ready(api), seconds=30, log=log)
    return names


def stop(layout: Layout, api: Api) -> None:
    """Takes the simulated nodes away with the pods on them."""
    nodes = _nodes(api)
    pods = [pod for pod in _items(api, "/api/v1/pods") if pod["spec"].get("nodeName") in nodes]
    api.request("DELETE", f"/api/v1/nodes?labelSelector={_SELECTOR}", timeout=60)
    with ThreadPoolExecutor(max_workers=16) as pool:
        list(pool.map(partial(_delete_at_once, api), pods))
    processes.end(layout.processes, "kwok")


def _delete_at_once(api: Api, pod: dict[str, Any]) -> None:
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
    try:
        api.request("DELETE", path, {"gracePeriodSeconds": 0}, timeout=60)
    except ApiError as error:
        if error.status != 404:
            raise


def _create(api: Api, name: str) -> None:
    resources = {"cpu": "64", "memory": "1Ti", "pods": "1000", ACCELERATOR: str(ACCELERATORS)}
    node: dict[str, Any] = {
        "metadata": {
            "name": name,
            "labels": {LABEL: "kwok", "kubernetes.io/hostname": name},
            "annotations": {TAINT: "fake"},
        },
        "spec": {"taints": [{"key": TAINT, "value": "fake", "effect": "NoSchedule"}]},
        "status": {"capacity": resources, "allocatable": resources},
    }
    try:
        api.request("POST", "/api/v1/nodes", node)
    except ApiError as error:
        if error.status != 409:
            raise


def _items(api: Api, path: str) -> list[dict[str, Any]]:
    return api.request("GET", path, timeout=60)["items"]


def _nodes(api: Api) -> dict[str, Any]:
    return {node["metadata"]["name"]: node for node in _items(api, f"/api/v1/nodes?labelSelector={_SELECTOR}")}


def _ready(api: Api) -> set[str]:
    return {
        name
        for name, node in _nodes(api).items()
        if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
    }
