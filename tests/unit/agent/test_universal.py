"""Ranks that are others than have saved: rank 0's agent makes the newest checkpoint universal before they begin."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import Gang, failure_policy
from tests.unit.agent.saved import tag, trainers

Make = Callable[..., Gang]
# Stands in for DeepSpeed's converter, which tests/oracle runs: it writes as that one does.
CONVERTER = """
import argparse, os, pathlib, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--input_folder"), parser.add_argument("--output_folder")
parser.add_argument("--inject_missing_state", action="store_true")
given = parser.parse_args()
output = pathlib.Path(given.output_folder)
(output / "zero").mkdir(parents=True)
(output / "mp_rank_00_model_states.pt").write_text(given.input_folder)
{act}
(output.parent / "latest_universal").write_text(output.name)
"""
SCRIPT = """
import os, pathlib, sys
root = pathlib.Path(sys.argv[1])
named = (root / "latest_universal").read_text()
print("loads", named, (root / named / "mp_rank_00_model_states.pt").is_file(), sys.argv[2:], flush=True)
"""


def elastic(gang: Make, root: Path, act: str = "", seconds: int = 60, nodes: int = 1, **fields: Any) -> Gang:
    checkpoint = {"path": str(root), "declared": True, "repairLatest": True, "since": 0, "conversionSeconds": seconds}
    args = [str(root), "$(RESUME_FROM)"]
    made = gang(script=SCRIPT, nodes=nodes, launch={"checkpoint": checkpoint, "args": args, **fields})
    module = made.code / "deepspeed" / "checkpoint"
    module.mkdir(parents=True)
    for package in (module, module.parent):
        (package / "__init__.py").touch()
    (module / "ds_to_universal.py").write_text(CONVERTER.format(act=act))
    return made


def test_the_ranks_find_what_was_made_of_the_newest_checkpoint(gang: Make, tmp_path: Path) -> None:
    root = tmp_path / "run"
    tag(root, 10, age=60)
    newest = tag(root, 20)
    (ended,) = elastic(gang, root).run()
    assert ended.code == 0, ended.output
    assert f"loads global_step20_universal True ['{newest}_universal']" in ended.output
    assert (root / "global_step20_universal" / "mp_rank_00_model_states.pt").read_text() == str(newest)
    assert {path.name for path in root.iterdir()} == {
        *("global_step10", "global_step20", "global_step20_universal", "latest", "latest_universal")
    }


def test_a_frameworks_directory_has_it_within(gang: Make, tmp_path: Path) -> None:
    root = tmp_path / "run"
    inner = trainers(root, 20)
    made = elastic(gang, root)
    made.launch["args"] = [str(inner), "$(RESUME_FROM)"]
    (ended,) = made.run()
    assert f"loads global_step20_universal True ['{inner}']" in ended.output


def test_a_checkpoint_of_fewer_ranks_that_does_not_say_of_how_many_is_whole(gang: Make, tmp_path: Path) -> None:
    root = tmp_path / "run"
    newest = tag(root, 20)
    (newest / "mp_rank_00_model_states.pt").write_bytes(b"of torch before 1.6")
    made = elastic(gang, root)
    made.slots = 4
    (ended,) = made.run()
    assert "loads global_step20_universal True" in ended.output
    assert (root / "latest").read_text() == newest.name


def test_what_is_made_is_made_once(gang: Make, tmp_path: Path) -> None:
    root = tmp_path / "run"
    tag(root, 20)
    elastic(gang, root).run()
    (again,) = elastic(gang, root, act="sys.exit('made again')").run()
    assert (again.code, "is made" in again.output) == (0, False), again.output


@pytest.mark.parametrize("age", [0, 60], ids=["since", "before, as a clock has it that was set back"])
def test_what_was_made_of_a_checkpoint_that_was_written_again_is_made_anew(
    gang: Make, tmp_path: Path, age: float
) -> None:
    root = tmp_path / "run"
    tag(root, 20, name="last", age=30)
    elastic(gang, root).run()
    tag(root, 40, name="last", age=age)
    (again,) = elastic(gang, root).run()
    assert "last is made universal" in again.output
    assert "loads last_universal True" in again.output


def test_what_a_converter_has_left_that_was_killed_is_made_anew(gang: Make, tmp_path: Path) -> None:
    root = tmp_path / "run"
    tag(root, 20)
    torn = root / "global_step20_universal.part"
    torn.mkdir()
    (torn / "zero").mkdir()
    (root / "latest_universal").write_text(torn.name)
    (ended,) = elastic(gang, root).run()
    assert "loads global_step20_universal True" in ended.output
    assert not torn.exists()


def test_without_a_checkpoint_nothing_is_made(gang: Make, tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    made = elastic(gang, root, act="sys.exit('of nothing')")
    made.code.joinpath("train.py").write_text("print('begins')")
    (ended,) = made.run()
    assert (ended.code, "universal" in ended.output) == (0, False), ended.output


def test_a_converter_that_fails_ends_the_run_of_all_pods_in_its_own_words(gang: Make, tmp_path: Path) -> None:
    root, go = tmp_path / "run", tmp_path / "go"
    source = tag(root, 20)
    # A pod that comes after the hub has ended waits for another, until the operator ends it.
    waits = f"while not os.path.exists({str(go)!r}): time.sleep(0.02)\nsys.exit('no room on the volume')"
    pods = elastic(gang, root, act=waits, nodes=2).start_all()
    pods[0].wait_for(lambda: pods[0].ask("/state") == 200 and pods[0].get("/state")[1]["hosts"]["registered"] == 1)
    go.touch()
    for ended in [pod.end() for pod in pods]:
        assert ended.cause["reason"] == "ConversionFailed"
        words = "deepspeed.checkpoint.ds_to_universal ended with 1: no room on the volume"
        assert ended.cause["signature"] == f"{source} was not made universal: {words}"
        assert "loads" not in ended.output
    assert {path.name for path in root.iterdir()} == {"global_step20", "latest"}, "what is half made takes room"


def test_one_that_takes_too_long_is_ended(gang: Make, tmp_path: Path) -> None:
    root = tmp_path / "run"
    tag(root, 20)
    (ended,) = elastic(gang, root, act="time.sleep(60)", seconds=1).run()
    assert ended.cause["reason"] == "ConversionFailed"
    assert "not done within 1 s (spec.checkpoint.conversionDeadlineSeconds)" in ended.cause["signature"]


def test_an_agent_that_is_told_to_end_meanwhile_ends(gang: Make, tmp_path: Path) -> None:
    root = tmp_path / "run"
    tag(root, 20)
    running = elastic(gang, root, act="time.sleep(60)").start()
    running.wait_for_output("is made universal")
    running.signal(signal.SIGTERM)
    ended = running.end()
    assert (ended.code, ended.cause["reason"]) == (143, "Terminated"), ended.output


# In its first round rank 0 saves once more, and fails.
SAVES = (
    "import os, pathlib, shutil\n"
    + SCRIPT
    + (
        "first = root / 'global_step20'\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    if os.environ['RANK'] == '0':\n"
        "        shutil.copytree(first, root / 'global_step30')\n"
        "        (root / 'latest').write_text('global_step30')\n"
        "        os.kill(os.getpid(), 9)\n"
        "    import time; time.sleep(60)\n"
    )
)


@pytest.mark.parametrize("nodes", [1, 2])
def test_each_round_goes_on_from_what_the_one_before_has_saved(gang: Make, tmp_path: Path, nodes: int) -> None:
    root = tmp_path / "run"
    tag(root, 20)
    made = elastic(gang, root, failurePolicy=failure_policy(), nodes=nodes)
    (made.code / "train.py").write_text(SAVES)
    ended = made.run()
    assert [each.code for each in ended] == [0] * nodes, ended[0].output
    assert "loads global_step20_universal True" in ended[0].output
    assert "loads global_step30_universal True" in ended[0].output


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_converter_that_fails_before_a_later_round_ends_the_attempt_as_that_round(
    gang: Make, tmp_path: Path, nodes: int
) -> None:
    root = tmp_path / "run"
    tag(root, 20)
    fails = "if 'global_step30' in given.input_folder: sys.exit('no room on the volume')"
    made = elastic(gang, root, act=fails, failurePolicy=failure_policy(), nodes=nodes)
    (made.code / "train.py").write_text(SAVES)
    for ended in made.run():
        assert (ended.cause["reason"], ended.cause["round"]) == ("ConversionFailed", 2), ended.output
        assert ended.cause["signature"].endswith("ended with 1: no room on the volume")
        assert ended.output.count("global_step30 is made universal") <= 1, "it is not tried again"
