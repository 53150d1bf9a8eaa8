"""What all tests share."""

import pytest
from hypothesis import settings

from tests.cluster.fixture import cluster

__all__ = ["cluster"]

# How long an example takes says how busy the machine is.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing with them"
    )
