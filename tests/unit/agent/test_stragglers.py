"""Ranks that all others wait for: what is timed of each, and who is slow."""

import time
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests.unit.agent.harness import load

stragglers = load("dso_stragglers")


class Own:
    """The ranks of a pod, whose passes take these seconds."""

    def __init__(self, *seconds: float) -> None:
        self.times = stragglers.OwnTimes()
        self.ranks = [SimpleNamespace(rank=rank, passes=0, pass_seconds=0.0) for rank in range(len(seconds))]
        self.seconds = seconds
        self.now = 0.0

    def make(self, passes: int, wall: float) -> Any:
        self.times.take(self.ranks, self.now)
        for rank, seconds in zip(self.ranks, self.seconds, strict=True):
            rank.passes += passes
            rank.pass_seconds += passes * seconds
        self.now += wall
        return self.times.take(self.ranks, self.now)


@pytest.mark.parametrize(
    ("passes", "wall", "told"), [(99, 1000, False), (1000, 59, False), (100, 60, True), (100_000, 60, True)]
)
def test_the_mean_of_a_window_is_told_once_it_is_whole(passes: int, wall: float, told: bool) -> None:
    assert Own(0.2, 0.3).make(passes, wall) == ([[0, 0.2], [1, 0.3]] if told else [])


def test_a_window_tells_nothing_of_those_before() -> None:
    own = Own(0.2)
    own.make(100, 60)
    own.seconds = (0.4,)
    assert own.make(100, 60) == [[0, 0.4]]


def test_another_engine_begins_anew() -> None:
    own = Own(0.2)
    own.make(100, 60)
    own.ranks[0].passes, own.ranks[0].pass_seconds = 0, 0.0
    own.seconds = (0.5,)
    own.make(50, 60)
    assert own.make(100, 60) == [[0, 0.5]]


def found(known: Any, *pods: tuple[float, ...]) -> list[tuple[int, tuple[int, ...], bool]]:
    paces: dict[int, Any] = {}
    rank = 0
    for index, means in enumerate(pods):
        paces[index] = {"own": [[rank + local, mean] for local, mean in enumerate(means)]}
        rank += len(means)
    known.check(paces, known.looks_at + 1)
    return [(each.pod, each.ranks, each.whole) for each in known.known.values()]


@pytest.mark.parametrize(
    ("pods", "slow"),
    [
        (((1.0, 1.1), (1.0, 1.2)), []),
        (((1.0, 1.0), (1.0, 1.3)), [(1, (3,), False)]),
        (((1.0, 1.0), (1.3, 1.4)), [(1, (2, 3), True)]),
        (((1.0,), (1.3,)), [(1, (1,), True)]),
        (((1.0, 1.0), (1.0, 0.2)), []),  # one that is fast makes nobody wait
        (((1.0,), ()), []),
        ((), []),
    ],
)
def test_who_is_slow(pods: tuple[tuple[float, ...], ...], slow: list[Any]) -> None:
    assert found(stragglers.Stragglers(), *pods) == slow


def test_it_is_told_as_it_was_found_until_it_is_slow_no_more() -> None:
    known = stragglers.Stragglers()
    words = "rank 1 of this pod takes 1.30 times as long for a forward pass as half of all ranks at most"
    for mean in (1.3, 1.4, 1.2):
        assert found(known, (1.0, mean)) == [(0, (1,), False)]
        assert known.known[0].words() == words
    assert found(known, (1.0, 1.1)) == []
    assert found(known, (1.0, 1.2)) == []


ENGINE = """\
import time
class Device:
    type = "cpu"
class Engine:
    stage, mpu, has_moe_layers, device, global_steps, training = 0, None, False, Device, 0, True
    def zero_optimization_stage(self): return self.stage
    def train_batch_size(self): return 8
    def train(self, mode=True): return self
    def eval(self): return self.train(False)
    def forward(self, seconds): time.sleep(seconds); return "loss"
    def _take_model_step(self, lr_kwargs=None): self.global_steps += 1
"""


@pytest.fixture
def records() -> Any:
    made = load("dso_progressranks").RankRecords(f"/tmp/deepspeed-operator-passes-{time.monotonic_ns()}")
    yield made
    made.end()


def trained(records: Any, **fields: Any) -> Any:
    """The record of a rank that has made five passes, two of them to evaluate."""
    namespace: dict[str, Any] = {}
    exec(ENGINE, namespace)
    engine = namespace["Engine"]()
    for name, value in fields.items():
        setattr(engine, name, value)
    recorder = load("dso_progresshook").Recorder(records.directory, 0)
    recorder.watch(engine)
    for _ in range(3):
        assert engine.forward(0.01) == "loss"
        engine._take_model_step()
    engine.eval()
    for _ in range(2):
        engine.forward(0.01)
    engine.train()
    (told,) = records.ranks()
    return told


def test_the_passes_of_a_training_are_timed(records: Any) -> None:
    told = trained(records)
    assert told.passes == 3
    assert told.pass_seconds >= 0.03


@pytest.mark.parametrize(
    "fields",
    [{"stage": 3}, {"mpu": object()}, {"has_moe_layers": True}, {"sequence_parallel_size": 2}, {"device": None}],
)
def test_where_collectives_are_part_of_a_pass_it_is_not_timed(records: Any, fields: dict[str, Any]) -> None:
    assert trained(records, **fields).passes == 0


class Event:
    """Of a GPU that is some passes behind."""

    done: ClassVar[list["Event"]] = []

    def __init__(self, enable_timing: bool) -> None:
        self.timed, self.at = enable_timing, 0.0

    def record(self) -> None:
        self.at = time.monotonic()

    def query(self) -> bool:
        return self in self.done

    def elapsed_time(self, end: "Event") -> float:
        return (end.at - self.at) * 1000


def test_on_a_gpu_nobody_waits_for_the_time(records: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stopwatch = load("dso_progresshook").Stopwatch("cpu")
    stopwatch.torch = SimpleNamespace(cuda=SimpleNamespace(Event=Event))
    ends: list[Event] = []
    for _ in range(3):
        stopwatch.add(stopwatch.mark())
        ends.append(stopwatch.pending[-1][1])
    assert (stopwatch.passes, len(stopwatch.pending)) == (0, 3)
    monkeypatch.setattr(Event, "done", ends)
    stopwatch.add(stopwatch.mark())
    assert (stopwatch.passes, len(stopwatch.pending)) == (3, 1)
    for _ in range(1000):
        stopwatch.add(stopwatch.mark())
    assert len(stopwatch.pending) <= stopwatch.MOST_PENDING
