"""An operator process in front of the real API server, with a proxy between them; pods run on simulated nodes."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev.cluster.cluster import Cluster
from tests.faults.jobs import Jobs
from tests.faults.proxy import Proxy
from tests.faults.replica import LONG_LEASE, Lease, Replica
from tests.faults.simulated import simulated_nodes


@pytest.fixture(scope="package")
def simulated(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with our kind, simulated nodes, and no installed operator at work."""
    with simulated_nodes(cluster) as prepared:
        yield prepared


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
def make_replica(jobs: Jobs, tmp_path: Path) -> Iterator[Callable[..., Replica]]:
    """Makes operator processes by identity."""
    made: list[Replica] = []

    def make(proxy: Proxy, identity: str, lease: Lease = LONG_LEASE) -> Replica:
        made.append(Replica(proxy.kubeconfig(tmp_path), jobs.namespace, tmp_path, identity, lease))
        return made[-1]

    yield make
    for replica in made:
        replica.end()


@pytest.fixture
def replica(make_replica: Callable[..., Replica], proxy: Proxy) -> Replica:
    """An operator process, not yet started."""
    return make_replica(proxy, "one")
