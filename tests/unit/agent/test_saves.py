"""How rank 0's agent comes to know of a save: by DeepSpeed's output, and by what the hook in the rank writes down."""

import contextlib
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import pytest

from tests.unit.agent.harness import Gang, load
from tests.unit.agent.saved import tag, trainers
from tests.unit.agent.test_checkpoints import given, settled, wait

Make = Callable[..., Gang]


def test_deepspeeds_output_tells_where_it_saves_and_when_it_began(tmp_path: Path) -> None:
    made, _ = settled(None)
    line = "[INFO] [engine.py:3549:save] Saving model checkpoint: {}/mp_rank_00_model_states.pt\n"
    made.take(line.format(tmp_path / "checkpoint-20/global_step20").encode())
    assert made.root == str(tmp_path), "of a framework's directory the one above"
    wait(lambda: made.idle)
    trainers(tmp_path, 20)
    made.look_again()
    wait(lambda: made.newest)
    known = made.summary()
    assert (known["tag"], known["step"], known["progressed"]) == ("checkpoint-20", 20, True)
    assert known["seconds"] is not None


# DeepSpeed as it saves when nothing below WARNING is logged: what the hook touches of it.
DEEPSPEED = """
import os, sys, time
sys.path[:0] = {path!r}
from pathlib import Path
from tests.unit.agent.saved import tag, trainers
class DeepSpeedEngine:
    def __init__(self):
        self.basic_optimizer = self
        self.param_groups, self.global_steps = [{{"lr": 0.001}}], 40
    def train_batch_size(self): return 8
    def save_checkpoint(self, save_dir, tag=None, client_state={{}}):
        time.sleep(1.2)
        tag_of(Path(save_dir), self.global_steps, name=tag)
    def _take_model_step(self, lr_kwargs=None): self.global_steps += 1
tag_of = tag
def initialize(): return DeepSpeedEngine(), None, None, None
"""
SAVING = """
import os, sys, time
import deepspeed
from pathlib import Path
engine, *_ = deepspeed.initialize()
engine._take_model_step()
root = {root!r}
{saves}
print("saved", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize(
    ("saves", "saved"),
    [
        ("engine.save_checkpoint(root)", "global_step41"),
        ("engine.save_checkpoint(root, tag='last'); time.sleep(1.5); engine.save_checkpoint(root, 'last')", "last"),
        (
            "engine.save_checkpoint(f'{root}/checkpoint-41')\ndeepspeed.trainers(Path(root), 41)",
            "checkpoint-41",
        ),
    ],
    ids=["by its step", "over the same tag", "the Trainer's"],
)
def test_how_long_a_save_took_is_told_where_deepspeed_is_silent(
    gang: Make, tmp_path: Path, saves: str, saved: str, declared: bool
) -> None:
    root = tmp_path / "checkpoints"
    (tmp_path / "users").mkdir()
    (tmp_path / "users/deepspeed.py").write_text(DEEPSPEED.format(path=[str(Path(__file__).parents[3])]))
    script = SAVING.format(root=str(root), saves=saves)
    checkpoint = given(root if declared else None, declared=declared)
    running = gang(script=script, slots=2, launch={"checkpoint": checkpoint}).start(PYTHONPATH=str(tmp_path / "users"))
    running.wait_for(lambda: running.output.count("saved") == 2)

    def known() -> dict[str, Any]:
        return running.get("/state")[1]["checkpoint"] or {}

    running.wait_for(lambda: known().get("tag") == saved and known()["seconds"] >= 1)
    assert (known()["path"], known()["step"], known()["progressed"]) == (str(root), 41, True)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Any]:
    made = load("dso_progressranks").RankRecords(f"/tmp/deepspeed-operator-{tmp_path.name}-{time.monotonic_ns()}")
    yield made
    made.end()


def recorder(records: Any) -> Any:
    return load("dso_progresshook").Recorder(records.directory, 0)


def saves(records: Any) -> list[str | None]:
    return [each.save and each.save[0] for each in records.ranks()]


def test_a_save_to_an_object_store_is_no_directory(records: Any, tmp_path: Path) -> None:
    made, _ = settled(None)
    made.take(b"Saving model checkpoint: s3://bucket/c/global_step1/mp_rank_00_model_states.pt\n")
    hook, engine = recorder(records), SimpleNamespace(global_steps=1)
    hook.note_save(engine, "s3://bucket/c")
    assert (made.root, saves(records)) == (None, [None])
    hook.note_save(engine, str(tmp_path))
    assert saves(records) == [f"{tmp_path}/global_step1"]


def test_a_path_that_is_not_yet_whole_is_none(records: Any) -> None:
    hook = recorder(records)
    for length, path in ((9, b""), (9, b"/c/tag"), (3, b"/c/tag")):
        struct.pack_into(load("dso_progresshook").SAVE, hook.memory, hook_place(), 1.0, length, path)
        assert saves(records) == [None]


def hook_place() -> int:
    place: int = load("dso_progresshook").SAVE_PLACE
    return place


def test_a_path_that_is_none_ends_nothing(tmp_path: Path) -> None:
    made, _ = settled(None)
    made.take_save(f"{tmp_path}/a\0b/global_step1", time.time())
    wait(lambda: made.idle)
    tag(tmp_path, 20)
    made.take_save(f"{tmp_path}/global_step20", time.time())
    wait(lambda: made.newest)


def test_a_save_that_another_tool_has_replaced_is_called_as_before(records: Any, tmp_path: Path) -> None:
    class Callable:
        def __call__(self, *arguments: Any) -> Any:
            return arguments

    class Method(Callable):
        def __get__(self, engine: Any, kind: Any) -> Any:
            return self if engine is None else MethodType(self, engine)

    class Engine:
        global_steps = 1
        save_checkpoint, save_16bit_model = Method(), Callable()

    engine = Engine()
    recorder(records).watch(engine)
    assert engine.save_checkpoint(str(tmp_path)) == (engine, str(tmp_path))
    assert engine.save_16bit_model("here") == ("here",)
    assert saves(records) == [f"{tmp_path}/global_step1"]


def test_two_threads_may_tell_of_a_save_at_once() -> None:
    """The one that reads the ranks' output, which must go on, and the main one, which looks at the hook's record."""
    made, _ = settled(None)
    both = threading.Barrier(2)

    class Begun(dict[str, float]):
        def __delitem__(self, key: str) -> None:
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.5)  # for the other, which has seen the same to delete
            super().__delitem__(key)

    made.begun = Begun((f"/old/{each}", 0.0) for each in range(16))
    failed: list[Exception] = []

    def tell() -> None:
        try:
            made.take_save("/c/tag", 1.0)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=tell) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert failed == []
    assert len(made.begun) == 16


def test_a_tag_that_is_saved_over_was_there_before(tmp_path: Path) -> None:
    tag(tmp_path, 20, name="last", age=60)
    made, _ = settled(None)
    made.take_save(f"{tmp_path}/last", time.time())
    wait(lambda: made.idle)
    assert (made.summary()["beganWith"], made.progressed) == (20, False)
    tag(tmp_path, 30, name="last")
    made.look_again()
    wait(lambda: made.progressed)
    assert (made.summary()["beganWith"], made.summary()["step"]) == (20, 30)


def test_what_lay_beside_a_save_that_was_over_at_once_was_there_before(tmp_path: Path) -> None:
    tag(tmp_path, 20, age=60)
    made, _ = settled(None)
    begun = time.time()
    tag(tmp_path, 30)
    made.take_save(f"{tmp_path}/global_step30", begun)
    wait(lambda: made.idle)
    assert (made.summary()["beganWith"], made.summary()["step"], made.progressed) == (20, 30, True)
