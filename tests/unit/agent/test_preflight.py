"""What is wrong before any rank starts ends the run with words that help, or is a warning in the state."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.agent.harness import Gang

Make = Callable[..., Gang]


def test_a_missing_script_is_shown_with_what_is_there(gang: Make) -> None:
    made = gang(launch={"program": {"kind": "script", "value": ["trian.py"]}})
    there = [path.name for path in made.code.iterdir()]
    for name in (*(f"a{index:02}.txt" for index in range(12)), "mine.py", "trains.py"):
        (made.code / name).touch()
    (ended,) = made.run()
    assert (ended.code, ended.cause["reason"]) == (1, "ScriptNotFound")
    text = ended.cause["signature"]
    assert text.startswith(f"script 'trian.py' not found: {made.code} (the working directory) has: ")
    listed, _, more = text.partition("has: ")[2].partition(" and ")
    names = listed.split(", ")
    assert names[0] in {"train.py", "trains.py"}, "what was meant"
    assert names.index("mine.py") < names.index("a00.txt")
    assert (len(names), more) == (10, f"{len(there) + 4} more")


def test_a_missing_interpreter(gang: Make) -> None:
    (ended,) = gang(launch={"python": "python9"}).run()
    assert (ended.code, ended.cause["reason"]) == (1, "PythonNotFound")
    assert "python9" in ended.cause["signature"]


def test_a_missing_command(gang: Make) -> None:
    (ended,) = gang(launch={"program": {"kind": "command", "value": ["no-such-command"]}}).run()
    assert (ended.code, ended.cause["reason"]) == (1, "ScriptNotFound")


def test_a_command_that_cannot_be_executed(gang: Make) -> None:
    made = gang(launch={"program": {"kind": "command", "value": ["./broken"]}})
    (made.code / "broken").write_bytes(b"\x00\x01")
    (made.code / "broken").chmod(0o755)
    (ended,) = made.run()
    assert (ended.code, ended.cause["reason"]) == (1, "PodCheckFailed")
    assert "broken" in ended.cause["signature"]


@pytest.mark.parametrize(("name", "value"), [("WORLD_SIZE", "16"), ("RANK", "5"), ("LOCAL_RANK", "3")])
def test_another_world_in_the_environment_is_refused(gang: Make, name: str, value: str) -> None:
    (ended,) = gang().run(**{name: value})
    assert (ended.code, ended.cause["reason"]) == (1, "WorldMismatch")
    assert f'{name} is already set to "{value}"' in ended.cause["signature"]


def test_the_same_world_in_the_environment_is_fine(gang: Make) -> None:
    (ended,) = gang().run(WORLD_SIZE="1", RANK="0", LOCAL_RANK="0")
    assert ended.code == 0


def test_a_hostfile_of_another_world_is_refused(gang: Make) -> None:
    (ended,) = gang(slots=2, launch={"slotsPerNode": 4}).run()
    assert ended.cause["reason"] == "WorldMismatch"
    assert "the hostfile has 1 hosts with slots [2]; planned are 1 with 4" in ended.cause["signature"]


@pytest.mark.parametrize(
    ("variable", "value", "slots", "reason"),
    [
        ("CUDA_VISIBLE_DEVICES", "0,1", 4, "PodCheckFailed"),
        ("CUDA_VISIBLE_DEVICES", "0,1", 2, "Completed"),
        ("CUDA_VISIBLE_DEVICES", "", 2, "Completed"),
        ("CUDA_VISIBLE_DEVICES", "-1", 2, "Completed"),
    ],
)
def test_ranks_need_a_device_each(gang: Make, variable: str, value: str, slots: int, reason: str) -> None:
    (ended,) = gang(slots=slots).run(**{variable: value})
    assert ended.cause["reason"] == reason


def test_a_failed_preflight_of_one_pod_ends_all(gang: Make) -> None:
    made = gang(nodes=2)
    first = made.start(0)
    first.wait_for(lambda: first.ask("/livez") == 200)
    causes = [each.end().cause for each in (first, made.start(1, WORLD_SIZE="3"))]
    assert [cause["reason"] for cause in causes] == ["WorldMismatch"] * 2
    assert [cause["index"] for cause in causes] == [1, 1]


def test_a_port_in_use_is_said(gang: Make) -> None:
    made = gang(script="import time; time.sleep(60)")
    first = made.start()
    first.wait_until_ready()
    second = made.start(DEEPSPEED_OPERATOR_POD_UID="another").end()
    assert (second.code, second.cause["reason"]) == (1, "PodCheckFailed")
    assert f"agent port {made.port}: Address already in use" in second.cause["signature"]
    assert first.ask("/readyz") == 200


def test_a_stale_configuration_in_the_working_directory_is_a_warning(gang: Make) -> None:
    made = gang()
    (made.code / "ds_config.json").write_text('{"train_batch_size": 1}')
    (ended,) = made.run()
    assert ended.code == 0
    assert "ds_config.json differs from the job's configuration" in ended.output
    assert (made.code / "ds_config.json").read_text() == '{"train_batch_size": 1}'


def test_what_a_sitecustomize_prints_and_starts_does_not_keep_the_ranks_from_starting(
    gang: Make, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, subprocess, sys\n"
        "if sys.orig_argv[1] == '-c':\n"
        "    os.write(1, b'caf\\xe9\\n')\n"
        "    subprocess.Popen(['sleep', '300'])\n"
    )
    (ended,) = gang(launch={"launcher": "Ranks"}).run(PYTHONPATH=str(tmp_path))
    assert (ended.code, ended.cause["reason"]) == (0, "Completed")
