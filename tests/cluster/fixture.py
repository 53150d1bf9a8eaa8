"""The cluster as a pytest fixture; a conftest imports it to make it known."""

import pytest

from dev.cluster.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """This machine's cluster, brought up if it is not.

    It stays up, so that the next run starts at once; `make cluster-down` ends it.
    """
    cluster = Cluster()
    cluster.up(nodes=2)
    return cluster
