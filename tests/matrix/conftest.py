"""The operator of the end-to-end tests runs the matrix, too."""

from tests.e2e.conftest import image, make_namespace, operator

__all__ = ["image", "make_namespace", "operator"]
