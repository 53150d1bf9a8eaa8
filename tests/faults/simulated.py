"""The cluster with our kind, simulated nodes, and no installed operator at work."""

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

from dev.cluster.api import ApiError
from dev.cluster.cluster import Cluster
from tests.faults.replica import eventually
from tests.shared import shared

ROOT = Path(__file__).parents[2]
DEPLOYMENTS = "/apis/apps/v1/deployments?labelSelector=app.kubernetes.io%2Fname%3Ddeepspeed-operator"
PODS = "/api/v1/pods?labelSelector=app.kubernetes.io%2Fname%3Ddeepspeed-operator"


@contextlib.contextmanager
def simulated_nodes(cluster: Cluster) -> Generator[Cluster]:
    """Prepare the cluster, and leave it as it was."""

    def begin() -> list[Any]:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
        cluster.kwok(nodes=5)
        installed: list[Any] = cluster.api.request("GET", DEPLOYMENTS)["items"]
        for deployment in installed:
            _scale(cluster, deployment, 0)
        eventually(lambda: not cluster.api.request("GET", PODS)["items"], 60)
        return installed

    def end(installed: list[Any]) -> None:
        cluster.kwok_stop()
        for deployment in installed:
            _scale(cluster, deployment, deployment["spec"]["replicas"])

    with shared("simulated-nodes", begin, end):
        yield cluster


def _scale(cluster: Cluster, deployment: Any, replicas: int) -> None:
    where = deployment["metadata"]
    path = f"/apis/apps/v1/namespaces/{where['namespace']}/deployments/{where['name']}"
    with contextlib.suppress(ApiError):  # it was uninstalled meanwhile
        cluster.api.request("PATCH", path, {"spec": {"replicas": replicas}})
