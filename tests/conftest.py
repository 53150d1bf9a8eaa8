"""What all tests share."""

import signal

import pytest
from hypothesis import settings

from tests.cluster.fixture import cluster

__all__ = ["cluster"]

# How long an example takes says how busy the machine is.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# A shell that runs the tests in the background has it ignored, and what is ignored is inherited by what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing with them"
    )
