"""Has the tests on the cluster run by one process, in their order, and those that need none beside them by another.

A pytest plugin for `-n 2`: the first wait for pods more than they compute.
"""

# xdist has no type stubs.
# pyright: reportMissingTypeStubs=false

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

BESIDE = ("tests/oracle", "tests/unit", "tests/demo")


class Scheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if nodeid.startswith(BESIDE) else "the cluster"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return Scheduling(config, log)
