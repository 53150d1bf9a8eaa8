"""Has the tests on the cluster run by one process, in their order, and those against DeepSpeed beside them by another.

A pytest plugin for `-n 2`: the first wait for pods more than they compute, the others use no cluster. Nothing goes on
beside a test that is marked `alone`.
"""

# xdist has no type stubs.
# pyright: reportMissingTypeStubs=false

import fcntl
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

BESIDE = "tests/oracle"


class Scheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if nodeid.startswith(BESIDE) else "the cluster"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with Path(__file__).open() as lock:
        if item.get_closest_marker("alone") is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        elif item.nodeid.startswith(BESIDE):
            fcntl.flock(lock, fcntl.LOCK_SH)
            # They and what they start compute while nobody else does.
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        return (yield)
