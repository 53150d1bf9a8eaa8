"""An operator process in front of the real API server, with a proxy between them; pods run on simulated nodes."""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api import ApiError
from tests.cluster.cluster import Cluster
from tests.faults.jobs import Jobs
from tests.faults.proxy import Proxy
from tests.faults.replica import Replica, eventually

ROOT = Path(__file__).parents[2]
DEPLOYMENTS = "/apis/apps/v1/deployments?labelSelector=app.kubernetes.io%2Fname%3Ddeepspeed-operator"
PODS = "/api/v1/pods?labelSelector=app.kubernetes.io%2Fname%3Ddeepspeed-operator"


@pytest.fixture(scope="package")
def simulated(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with our kind, simulated nodes, and no installed operator at work."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    cluster.kwok(nodes=5)
    installed: list[Any] = cluster.api.request("GET", DEPLOYMENTS)["items"]
    for deployment in installed:
        _scale(cluster, deployment, 0)
    eventually(lambda: not cluster.api.request("GET", PODS)["items"], 60)
    yield cluster
    cluster.kwok_stop()
    for deployment in installed:
        _scale(cluster, deployment, deployment["spec"]["replicas"])


def _scale(cluster: Cluster, deployment: Any, replicas: int) -> None:
    where = deployment["metadata"]
    path = f"/apis/apps/v1/namespaces/{where['namespace']}/deployments/{where['name']}"
    with contextlib.suppress(ApiError):  # it was uninstalled meanwhile
        cluster.api.request("PATCH", path, {"spec": {"replicas": replicas}})


@pytest.fixture
def jobs(simulated: Cluster) -> Iterator[Jobs]:
    """A namespace for DeepSpeedJobs."""
    name = f"faults-{secrets.token_hex(3)}"
    simulated.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield Jobs(simulated.api, name)
    simulated.api.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def make_proxy(simulated: Cluster) -> Iterator[Callable[[], Proxy]]:
    """Makes proxies."""
    made: list[Proxy] = []

    def make() -> Proxy:
        proxy = Proxy(simulated.kubeconfig)
        proxy.__enter__()
        made.append(proxy)
        return proxy

    yield make
    for proxy in made:
        proxy.__exit__(None, None, None)


@pytest.fixture
def proxy(make_proxy: Callable[[], Proxy]) -> Proxy:
    """The way to the API server."""
    return make_proxy()


@pytest.fixture
def make_replica(jobs: Jobs, tmp_path: Path) -> Iterator[Callable[[Proxy, str], Replica]]:
    """Makes operator processes by identity."""
    made: list[Replica] = []

    def make(proxy: Proxy, identity: str) -> Replica:
        made.append(Replica(proxy.kubeconfig(tmp_path), jobs.namespace, tmp_path, identity))
        return made[-1]

    yield make
    for replica in made:
        replica.end()


@pytest.fixture
def replica(make_replica: Callable[[Proxy, str], Replica], proxy: Proxy) -> Replica:
    """An operator process, not yet started."""
    return make_replica(proxy, "one")
