"""Has the tests on the cluster run by one process, in their order, and those against DeepSpeed beside them by another.

A pytest plugin for `-n 2`: the first wait for pods more than they compute, the others use no cluster. Nothing goes on
beside a test that is marked `alone`.
"""

# xdist has no type stubs.
# pyright: reportMissingTypeStubs=false

import fcntl
from collections.abc import Generator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from dev.cluster import cgroups

BESIDE = "tests/oracle"
# They may wait for minutes until the machine has a moment for them.
LONGEST_SECONDS = 1800


class Scheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if nodeid.startswith(BESIDE) else "the cluster"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(BESIDE):
            item.add_marker(pytest.mark.timeout(LONGEST_SECONDS), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with Path(__file__).open() as lock:
        if item.get_closest_marker("alone") is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        elif item.nodeid.startswith(BESIDE):
            fcntl.flock(lock, fcntl.LOCK_SH)
            _compute_last()
        return (yield)


def _compute_last() -> None:
    """Have this process, and what it starts, compute while nobody else does.

    A scheduling class does not say so: the kernel gives the ranks in a pod without requests, which are a group, less
    than any other session of processes.
    """
    group = (cgroups.ROOT if cgroups.unified() else cgroups.ROOT / "cpu") / "beside-the-cluster"
    if cgroups.unified():
        (cgroups.ROOT / "cgroup.subtree_control").write_text("+cpu")
    group.mkdir(exist_ok=True)
    (group / "cpu.idle").write_text("1")
    (group / "cgroup.procs").write_text("0")
