from tests.cluster.fixture import cluster

__all__ = ["cluster"]
