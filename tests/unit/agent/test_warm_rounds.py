"""Ranks that start again in their pods come from a warm interpreter, once one of them has shown what they import."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

from tests.unit.agent.harness import Gang, Running, failure_policy
from tests.unit.agent.test_first_steps import DEEPSPEED, installed

Make = Callable[..., Gang]
WARM = {"failurePolicy": failure_policy(warmInterpreters="Auto")}
READY = "warm interpreter: "
# Each round steps, and then waits for what ends it.
TRAIN = """\
import os, sys, time
warm = "slow" in sys.modules
import slow, deepspeed
engine, *_ = deepspeed.initialize(optimizer=object())
number = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["MASTER_PORT"]
print("pid", os.getpid(), os.getppid(), "warm" if warm else "cold", *number, flush=True)
if {fails}:
    raise ValueError("before its first step")
for step in range(3):
    engine._take_model_step(step)
print("stepped", flush=True)
while not os.path.exists({end!r}):
    time.sleep(0.02)
"""


def starts(running: Running) -> list[list[str]]:
    """Of each rank that has started: process, parent, warm or cold, restarts, port."""
    return re.findall(r"pid (\d+) (\d+) (\w+) (\d+) (\d+)", running.output)


def trained(made: Gang, tmp_path: Path, fails: str = "False", **environment: str) -> list[Running]:
    users = installed(tmp_path / "users", deepspeed=DEEPSPEED, slow="imported = True")
    (made.code / "train.py").write_text(TRAIN.format(fails=fails, end=str(tmp_path / "end")))
    return made.start_all(PYTHONPATH=users, **environment)


def wait_for_steps(pods: list[Running], number: int) -> None:
    for running in pods:
        running.wait_for(lambda pod=running: pod.output.count("stepped") == number, 60)


def test_ranks_start_again_from_a_warm_interpreter_in_every_pod_and_round(gang: Make, tmp_path: Path) -> None:
    pods = trained(gang(nodes=2, launch=WARM), tmp_path)
    # A node on which a second rank is killed would give its pod back.
    for round_, (index, number) in enumerate([(1, signal.SIGKILL), (0, signal.SIGKILL), (1, signal.SIGUSR1)], 1):
        wait_for_steps(pods, round_)
        for running in pods:
            running.wait_for_output(READY)
        os.kill(int(starts(pods[index])[-1][0]), number)
    wait_for_steps(pods, 4)
    (tmp_path / "end").touch()
    ended = [running.end() for running in pods]
    for running, end in zip(pods, ended, strict=True):
        assert end.code == 0, end.output
        begun = starts(running)
        assert [kind for *_, kind, _, _ in begun] == ["cold", "warm", "warm", "warm"]
        assert {int(parent) for _, parent, *_ in begun} == {running.process.pid}
        assert end.output.count(READY) == 1, "one process serves all rounds"
        assert "start with cold interpreters" not in end.output


def test_a_forked_rank_that_fails_before_its_first_step_makes_the_next_start_cold(gang: Make, tmp_path: Path) -> None:
    (running,) = trained(gang(launch=WARM), tmp_path, fails="warm")
    wait_for_steps([running], 1)
    running.wait_for_output(READY)
    os.kill(int(starts(running)[-1][0]), signal.SIGKILL)
    wait_for_steps([running], 2)
    (tmp_path / "end").touch()
    ended = running.end()
    assert ended.code == 0, ended.output
    assert [kind for *_, kind, _, _ in starts(running)] == ["cold", "warm", "cold"]
    words = (
        "the ranks start with cold interpreters: a rank that was forked from a warm one failed before its first step"
    )
    assert words in ended.output


def test_where_the_job_says_off_all_starts_are_cold_and_nothing_is_loaded_for_warm_ones(
    gang: Make, tmp_path: Path
) -> None:
    made = gang(launch={"failurePolicy": failure_policy()})
    (running,) = trained(made, tmp_path, PYTHONPROFILEIMPORTTIME="1")
    wait_for_steps([running], 1)
    os.kill(int(starts(running)[-1][0]), signal.SIGKILL)
    wait_for_steps([running], 2)
    (tmp_path / "end").touch()
    ended = running.end()
    assert (ended.code, READY in ended.output) == (0, False), ended.output
    assert [kind for *_, kind, _, _ in starts(running)] == ["cold", "cold"]
    assert re.search(r"\| +dso_round\n", ended.output), "imports are told"
    assert not re.search(r"dso_(warm|imports|fork\w+|preload)\b", ended.output)
