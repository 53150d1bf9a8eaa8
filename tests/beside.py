"""Has processes run the tests on the cluster, stage by stage, and one those against DeepSpeed beside them.

A pytest plugin for `-n 3`. Tests on the cluster wait for pods more than they compute, the others use no cluster. The
first test of a stage begins when the last one of the stage before has ended. Nothing else uses the cluster beside a
test that is marked `disrupts`, and nothing at all goes on beside one that is marked `alone`.
"""

# xdist has no type stubs.
# pyright: reportMissingTypeStubs=false

import contextlib
import fcntl
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from dev.cluster import cgroups

BESIDE = "tests/oracle"
# Directories by stage, in their order: those of one go on at once, and the next begins when all of them have ended.
STAGES = (("tests/cluster", "tests/images"), ("tests/matrix", "tests/e2e"), ("tests/faults",), ("tests/life",))
_ORDER = [directory for stage in STAGES for directory in stage]
# They may wait for minutes until the machine has a moment for them.
_LONGEST_SECONDS = 1800
_LOOK_EVERY_SECONDS = 0.2
_NOTES = pytest.StashKey[Path]()


def directory_of(nodeid: str) -> str:
    """Return the directory of tests that says when this one goes on."""
    return "/".join(nodeid.partition("::")[0].split("/")[:2])


def stage_of(nodeid: str) -> int | None:
    """Return the number of the stage of a test or file; None for what uses no cluster."""
    directory = directory_of(nodeid)
    return next((number for number, stage in enumerate(STAGES) if directory in stage), None)


def failed_elsewhere(config: pytest.Config) -> bool:
    """Whether a test of another process of this run has failed."""
    notes = _notes(config)
    return notes is not None and (notes / "failed").exists()


class Scheduling(LoadScopeScheduling):
    """Gives each process one file after the other, and notes which stages have ended."""

    def __init__(self, config: pytest.Config, log: Producer, notes: Path) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._notes = notes

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _is_beside(self, node: WorkerController) -> bool:
        """Whether it is the last process that there was at first: one that takes another's place comes after it."""
        return node is list(self.registered_collections)[self.numnodes - 1]

    def _reschedule(self, node: WorkerController) -> None:
        """End the process beside the cluster with its last file: what it computes comes last."""
        if self._is_beside(node) and not any(file.startswith(BESIDE) for file in self.workqueue):
            node.shutdown()
        else:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        beside = self._is_beside(node)

        def order(file: str) -> tuple[bool, int]:
            directory = directory_of(file)
            return file.startswith(BESIDE) != beside, _ORDER.index(directory) if directory in _ORDER else 0

        self.workqueue.move_to_end(min(self.workqueue, key=order), last=False)
        super()._assign_work_unit(node)

    def schedule(self) -> None:
        super().schedule()
        self._note_ended_stages()

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        self._note_ended_stages()

    def _note_ended_stages(self) -> None:
        """Also those of which no test was asked for."""
        units = (self.workqueue, *self.assigned_work.values())
        going_on = {stage_of(file) for unit in units for file, tests in unit.items() if not all(tests.values())}
        for stage in range(len(STAGES)):
            if stage in going_on:
                break
            (self._notes / f"ended-{stage}").touch()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    stash = node.config.stash
    stash.setdefault(_NOTES, Path(tempfile.mkdtemp(prefix="tests-")))
    node.workerinput["notes"] = str(stash[_NOTES])  # pyright: ignore[reportUnknownMemberType]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return Scheduling(config, log, config.stash[_NOTES])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController, error: object) -> None:
    """What a lost process was to run comes after what the others wait with: its stage does not end."""
    if error is not None:
        (node.config.stash[_NOTES] / "lost").touch()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(BESIDE):
            item.add_marker(pytest.mark.timeout(_LONGEST_SECONDS), append=False)


# First, so that a test's time does not count until it begins.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    notes = _notes(item.config)
    if notes is None:
        return (yield)
    with contextlib.ExitStack() as held:
        if item.nodeid.startswith(BESIDE):
            held.enter_context(_held(notes / "machine", fcntl.LOCK_SH))
            _compute_last()
        else:
            for stage in range(stage_of(item.nodeid) or 0):
                while not (notes / f"ended-{stage}").exists():
                    assert not (notes / "lost").exists(), "another process of these tests has ended"
                    time.sleep(_LOOK_EVERY_SECONDS)
            alone = item.get_closest_marker("alone") is not None
            by_itself = alone or item.get_closest_marker("disrupts") is not None
            held.enter_context(_held(notes / "cluster", fcntl.LOCK_EX if by_itself else fcntl.LOCK_SH))
            if alone:
                held.enter_context(_held(notes / "machine", fcntl.LOCK_EX))
        try:
            return (yield)
        finally:
            if item.session.testsfailed:
                (notes / "failed").touch()


def _notes(config: pytest.Config) -> Path | None:
    """Return the directory of what the processes of this run tell each other; None if it has one process."""
    told = getattr(config, "workerinput", {}).get("notes")
    return Path(told) if told is not None else None


@contextlib.contextmanager
def _held(lock: Path, how: int) -> Generator[None]:
    """Hold the lock. While one waits to have it for itself, nobody else comes before."""
    with lock.open("w") as file, lock.with_suffix(".turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        fcntl.flock(file, how)
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield


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
