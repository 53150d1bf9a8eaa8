"""What all tests share."""

import pytest

from tests.cluster.fixture import cluster

__all__ = ["cluster"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing with them"
    )
