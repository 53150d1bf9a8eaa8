"""What rank 0's agent does with a run's checkpoints before its ranks start, and what it gives them to go on from."""

import errno
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import Gang, failure_policy, launch_of, load, rule
from tests.unit.agent.saved import aged, cut, files, tag, trainers

Make = Callable[..., Gang]
OPTIMIZER = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
LACKS = f"{OPTIMIZER} is not written to its end"


def given(path: Path | str | None, **fields: Any) -> dict[str, Any]:
    return {
        "path": None if path is None else str(path),
        "declared": False,
        "repairLatest": True,
        "since": 0,
        "conversionSeconds": 0,
        **fields,
    }


def settled(path: Path | str | None, **fields: Any) -> tuple[Any, list[str]]:
    """The checkpoints as they are known when a round begins, and what is said of them."""
    said: list[str] = []
    config = fields.pop("configPath", None)
    launch = launch_of(2, checkpoint=given(path, **fields), configPath=config)
    made = load("dso_checkpoint").Checkpoints(launch, said.append)
    made.start()
    made.settle()
    wait(lambda: made.idle)
    return made, said


def wait(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_latest_that_names_a_torn_tag_names_the_newest_complete_one_again(tmp_path: Path) -> None:
    tag(tmp_path, 10, age=60)
    whole = tag(tmp_path, 20, age=40)
    torn = tag(tmp_path, 30, age=20)
    cut(torn / OPTIMIZER)
    made, said = settled(tmp_path)
    assert (tmp_path / "latest").read_text() == "global_step20"
    assert (torn / OPTIMIZER).exists(), "it is kept"
    assert made.resume_from == str(whole)
    done = "it now names global_step20, the newest complete one"
    assert said == [f"{tmp_path}/latest named global_step30, which is not complete: {LACKS}; {done}"]
    assert made.summary()["repaired"] == {"torn": "global_step30", "missing": LACKS, "tag": "global_step20"}


@pytest.mark.parametrize("text", ["", "global_step99"])
def test_so_does_one_that_names_nothing(tmp_path: Path, text: str) -> None:
    tag(tmp_path, 20)
    (tmp_path / "latest").write_text(text)
    settled(tmp_path)
    assert (tmp_path / "latest").read_text() == "global_step20"


def test_a_directory_that_nobody_may_read_keeps_latest_from_no_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag(tmp_path, 20)
    (tmp_path / "latest").write_text("global_step99")
    (tmp_path / "lost+found").mkdir()
    entries = files._entries

    def refusing(path: str) -> Any:
        if path.endswith("lost+found"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return entries(path)

    monkeypatch.setattr(files, "_entries", refusing)
    settled(tmp_path)
    assert (tmp_path / "latest").read_text() == "global_step20"


def failing(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let so many looks fail, as on a volume whose server is away."""
    module, left = load("dso_checkpoint"), [OSError(errno.ESTALE, "Stale file handle")] * times
    look = module.newest_complete

    def newest(root: str, ranks: int) -> Any:
        if left:
            raise left.pop()
        return look(root, ranks)

    monkeypatch.setattr(module, "newest_complete", newest)


def test_a_volume_that_fails_once_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tag(tmp_path, 20)
    failing(monkeypatch, 1)
    made, said = settled(tmp_path)
    assert (made.resume_from, said) == (str(whole), [])


def test_a_volume_that_goes_on_failing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tag(tmp_path, 20)
    failing(monkeypatch, 1000)
    monkeypatch.setattr(load("dso_checkpoint"), "INSIST_SECONDS", 0.0)
    made, said = settled(tmp_path)
    assert made.resume_from == ""
    assert said == [f"checkpoints in {tmp_path} cannot be seen: [Errno {errno.ESTALE}] Stale file handle"]


def test_a_universal_checkpoint_stays_named(tmp_path: Path) -> None:
    tag(tmp_path, 10)
    (tag(tmp_path, 20, name="global_step20_universal") / "zero").mkdir()
    _, said = settled(tmp_path)
    assert ((tmp_path / "latest").read_text(), said) == ("global_step20_universal", [])


def written(path: Path) -> tuple[int, int]:
    """Which file it is, and when it was written last: reading it changes neither."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


def test_where_all_is_complete_nothing_is_written(tmp_path: Path) -> None:
    tag(tmp_path, 10)
    tag(tmp_path, 20)
    before = written(tmp_path / "latest")
    made, said = settled(tmp_path)
    assert (written(tmp_path / "latest"), said) == (before, [])
    assert made.resume_from == str(tmp_path / "global_step20")


def test_the_job_may_forbid_it(tmp_path: Path) -> None:
    whole = tag(tmp_path, 10, age=60)
    cut(tag(tmp_path, 20) / OPTIMIZER)
    made, said = settled(tmp_path, repairLatest=False)
    assert ((tmp_path / "latest").read_text(), said, made.resume_from) == ("global_step20", [], str(whole))


def test_a_run_whose_first_checkpoint_is_torn_begins_anew(tmp_path: Path) -> None:
    cut(tag(tmp_path, 10) / OPTIMIZER)
    made, (said,) = settled(tmp_path)
    assert not (tmp_path / "latest").exists()
    assert (tmp_path / "latest.torn").read_text() == "global_step10"
    assert "no other one is there" in said
    assert (made.resume_from, made.summary()["repaired"]["tag"]) == ("", None)


def test_what_another_run_left_there_is_not_taken_away(tmp_path: Path) -> None:
    torn = tag(tmp_path, 10)
    cut(torn / OPTIMIZER)
    aged(torn, 60)
    _, (said,) = settled(tmp_path, since=int(time.time()) - 30)
    assert (tmp_path / "latest").read_text() == "global_step10"
    assert said == f"{tmp_path}/latest names global_step10, which is not complete: {LACKS}; no other one is either"


def test_what_ranks_of_an_earlier_round_were_told_is_not_said_of_the_next(tmp_path: Path) -> None:
    made, _ = settled(tmp_path)
    made.tell_to_end()
    assert made.saved_at_end(0.0) == "did not save"
    made.settle()
    assert made.saved_at_end(0.0) == ""


def test_the_trainers_are_found_without_a_latest(tmp_path: Path) -> None:
    whole = trainers(tmp_path, 20, age=40)
    (trainers(tmp_path, 40, age=20) / "trainer_state.json").unlink()
    made, said = settled(tmp_path)
    assert (made.resume_from, said) == (str(whole), [])


@pytest.mark.parametrize("path", ["s3://bucket/checkpoints", "/nowhere/at/all", None])
def test_what_cannot_be_looked_at_is_unknown(path: str | None) -> None:
    made, said = settled(path)
    assert (made.resume_from, said, made.newest) == ("", [], None)
    assert made.summary() == (path and {**made.summary(), "path": path, "tag": None})


def test_a_node_that_has_but_its_own_part_is_left_alone(tmp_path: Path) -> None:
    cut(tag(tmp_path, 10) / OPTIMIZER)
    config = tmp_path / "ds_config.json"
    config.write_text('{"checkpoint": {"use_node_local_storage": true}}')
    made, said = settled(tmp_path, configPath=str(config))
    assert ((tmp_path / "latest").read_text(), said, made.newest) == ("global_step10", [], None)


def test_what_was_there_before_is_no_progress(tmp_path: Path) -> None:
    tag(tmp_path, 20, age=60)
    made, _ = settled(tmp_path)
    assert not made.progressed
    tag(tmp_path, 30)
    made.look_again()
    wait(lambda: made.progressed)


# A rank that says with which arguments it was started, saves, and fails the first time.
SCRIPT = """
import os, sys, time
sys.path[:0] = {path!r}
from pathlib import Path
from tests.unit.agent.saved import cut, tag
root, rank, restarts = Path({root!r}), int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print("arguments", sys.argv[1:], flush=True)
Path(f"told-{{restarts}}-{{rank}}").touch()
if rank == 0 and restarts == 0:
    while not os.path.exists("told-0-1"):
        time.sleep(0.01)
    tag(root, 10)
    cut(tag(root, 20) / {optimizer!r})
    os.kill(os.getpid(), 9)
if restarts == 0:
    time.sleep(60)
"""


def test_every_round_goes_on_from_the_newest_complete_one(gang: Make, tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    here = str(Path(__file__).parents[3])
    ended = gang(
        nodes=2,
        script=SCRIPT.format(path=[here], root=str(root), optimizer=OPTIMIZER),
        launch={
            "failurePolicy": failure_policy(),
            "checkpoint": given(root),
            "args": ["--resume", "$(RESUME_FROM)", "--from=$(RESUME_FROM)", "a $(RESUME_FROM)", "$$(RESUME_FROM)"],
        },
    ).run()
    step10 = f"{root}/global_step10"
    first = ["a ", "$(RESUME_FROM)"]
    second = ["--resume", step10, f"--from={step10}", f"a {step10}", "$(RESUME_FROM)"]
    for each in ended:
        assert each.code == 0, each.output
        told = [line.partition("arguments ")[2] for line in each.output.splitlines() if "arguments [" in line]
        assert told == [str(first), str(second)]
    assert "latest named global_step20" in ended[0].output
    assert ended[0].cause["checkpoint"]["step"] == 10


FAILING = """
import os, sys
sys.path[:0] = {path!r}
from pathlib import Path
from tests.unit.agent.saved import tag
root, restarts = Path({root!r}), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if restarts < 2:
    tag(root, 10 * (restarts + 1))
raise ValueError("loss is NaN")
"""


def test_a_program_that_fails_starts_again_as_long_as_it_has_saved_something_new(gang: Make, tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    script = FAILING.format(path=[str(Path(__file__).parents[3])], root=str(root))
    policy = failure_policy(rules=[rule(action="Fail", unlessSaved=True)])
    (ended,) = gang(script=script, launch={"failurePolicy": policy, "checkpoint": given(root)}).run()
    assert (ended.code, ended.cause["round"], ended.cause["rounds"]["user"]) == (1, 3, 2)
    assert ended.cause["checkpoint"] == {**ended.cause["checkpoint"], "tag": "global_step20", "progressed": False}


SAVES_AT_THE_END = """
import os, signal, sys, time
sys.path[:0] = {path!r}
from pathlib import Path
from tests.unit.agent.saved import tag
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), {saves} and tag(Path({root!r}), 40), sys.exit(0)))
print("trains", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("saves", "words"), [(True, "saved at step 40, "), (False, "did not save")])
def test_what_ranks_save_when_they_are_told_to_end_is_told(gang: Make, tmp_path: Path, saves: bool, words: str) -> None:
    root = tmp_path / "checkpoints"
    tag(root, 30, age=60)
    script = SAVES_AT_THE_END.format(path=[str(Path(__file__).parents[3])], root=str(root), saves=saves)
    running = gang(script=script, launch={"checkpoint": given(root)}).start()
    running.wait_for_output("trains")
    running.signal(signal.SIGTERM)
    ended = running.end()
    assert ended.code == 143
    assert ended.cause["savedAtEnd"].startswith(words)
    assert f"told to end, the ranks {words}" in ended.output
