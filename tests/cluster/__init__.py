"""A real Kubernetes on one machine, for the demonstration and the tests."""

from tests.cluster.cluster import AuditEvent, Cluster

__all__ = ["AuditEvent", "Cluster"]
