"""The cluster and the operator of the end-to-end tests."""

from tests.e2e.conftest import image, operator, plain

__all__ = ["image", "operator", "plain"]
