"""The operator of the end-to-end tests runs the matrix, too. A package: else it would stay to the end of all tests."""

from tests.e2e.conftest import image, make_namespace, operator

__all__ = ["image", "make_namespace", "operator"]
