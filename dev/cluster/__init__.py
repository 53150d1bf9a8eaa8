"""A real Kubernetes on one machine, for the demonstration and the tests."""

from dev.cluster.cluster import AuditEvent, Cluster

__all__ = ["AuditEvent", "Cluster"]
