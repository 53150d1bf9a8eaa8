"""Where the ranks' threads are: asked of real ranks of real agents."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import AGENT, Gang, interpreters

Make = Callable[..., Gang]

HOLDS_THE_LOCK = """
import ctypes

def in_c():
    while True:
        ctypes.PyDLL(None).sleep(60)  # called with the interpreter's lock held; a signal ends it early

print("ready", flush=True)
in_c()
"""
WITH_A_CHILD = """
import os, time

def loading():
    time.sleep(60)

if os.fork() == 0:
    loading()
print("ready", flush=True)
os.wait()
"""
HAS_ITS_OWN_HANDLER = """
import signal, time

signal.signal(50, lambda *_: print("the program's own", flush=True))
print("ready", flush=True)
while True:
    time.sleep(1)
"""
NO_HANDLER = "import os; os.execvp('sh', ['sh', '-c', 'echo ready; sleep 60; true'])"


def asked(directory: Path) -> list[dict[str, Any]]:
    environment = {**os.environ, "TMPDIR": str(directory)}
    command = [sys.executable, "-S", str(AGENT), "stacks"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def ranks(gang: Make, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Starts a pod of ranks, and asks them where they are once they say that they are ready."""

    def run(script: str, *, slots: int = 1, **fields: Any) -> list[dict[str, Any]]:
        made = gang(slots=slots, script=script, **fields).start(TMPDIR=str(tmp_path))
        made.wait_for(lambda: made.output.count("ready") == slots)
        return asked(tmp_path)

    return run


@pytest.mark.parametrize("python", sorted({sys.executable, interpreters()[0], interpreters()[-1]}))
def test_a_rank_in_c_code_that_holds_the_lock_says_where(ranks: Any, python: str) -> None:
    found = ranks(HOLDS_THE_LOCK, slots=2, python=python)
    assert [each["rank"] for each in found] == [0, 1]
    for each in found:
        assert 'train.py", line 6 in in_c' in each["stacks"]
        assert each["state"] == "S"


def test_asked_again_it_says_it_again_and_runs_on(ranks: Any, tmp_path: Path) -> None:
    (first,) = ranks(HOLDS_THE_LOCK)
    (second,) = asked(tmp_path)
    assert (second["pid"], second["stacks"]) == (first["pid"], first["stacks"])


def test_what_a_rank_has_forked_says_it_too(ranks: Any) -> None:
    (rank,) = ranks(WITH_A_CHILD)
    (child,) = rank["children"]
    assert "in loading" in child["stacks"]
    assert "in loading" not in rank["stacks"]


@pytest.mark.parametrize("script", [HAS_ITS_OWN_HANDLER, NO_HANDLER])
def test_no_other_program_is_disturbed(ranks: Any, tmp_path: Path, script: str) -> None:
    (rank,) = ranks(script)
    (again,) = asked(tmp_path)
    assert (again["pid"], again["stacks"]) == (rank["pid"], "")
