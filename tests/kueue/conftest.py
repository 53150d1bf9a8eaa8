"""A real Kueue, an operator process and simulated nodes, in front of the cluster's API server: `make kueue-full`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev.cluster import kueue as real
from dev.cluster.cluster import Cluster
from tests.faults.conftest import jobs, simulated
from tests.faults.jobs import Jobs
from tests.faults.replica import Replica

__all__ = ["jobs", "simulated"]


@pytest.fixture(scope="package")
def kueue(simulated: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[real.Kueue]:
    """Kueue at work."""
    with real.installed(simulated.layout, simulated.kubeconfig, tmp_path_factory.mktemp("kueue")) as kueue:
        yield kueue


@pytest.fixture
def replica(simulated: Cluster, jobs: Jobs, tmp_path: Path) -> Iterator[Replica]:
    """An operator process at work."""
    replica = Replica(simulated.kubeconfig, jobs.namespace, tmp_path)
    replica.start(wait=False)
    replica.eventually(lambda: replica.get("/readyz")[1] == "leading", 90)
    yield replica
    replica.end()


@pytest.fixture
def eventually(replica: Replica) -> Callable[..., None]:
    return replica.eventually
