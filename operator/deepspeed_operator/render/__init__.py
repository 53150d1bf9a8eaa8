"""Spec and plan → Kubernetes objects and the files that the pods read."""
