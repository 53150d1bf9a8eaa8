"""Gangs that hang: who is behind and where, as the agents tell it of real ranks; and what only looks like it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.consoles import ROOT
from tests.unit.agent.harness import Gang, Running, altered, failure_policy, hang, interpreters
from tests.unit.agent.test_progress_sources import DEEPSPEED

Make = Callable[..., Gang]
# Seconds: a rank that gets no processor for so long hangs indeed, and a busy machine gives none for some.
LIMIT, LIMIT_OF_A_START = 10, 15
ENDS = 180  # seconds, within which a gang ends whose ranks would hang for longer

# A collective that waits for all ranks, at a path where torch has its own; and a data loader.
COLLECTIVES = """\
import os, time
def wait_for_all(name):
    name = f"meeting-{os.environ['TORCHELASTIC_RESTART_COUNT']}-{name}-"
    open(name + os.environ["RANK"], "w").close()
    while not all(os.path.exists(f"{name}{rank}") for rank in range(int(os.environ["WORLD_SIZE"]))):
        time.sleep(0.005)
def all_reduce(step):
    wait_for_all(step)
def barrier():
    wait_for_all("barrier")
"""
DATALOADER = """\
import queue
def _get_data():
    return queue.Queue().get()
"""
TRAIN = """\
import ctypes, os, re, signal, time
import deepspeed
from torch.distributed.collectives import all_reduce, barrier
from torch.utils.data import dataloader

def asleep():
    time.sleep(600)

def spinning():
    re.match("(a+)+$", "a" * 64 + "b")  # within C code, which holds the interpreter's lock

def in_the_kernel():
    os.mkfifo("fifo")  # the process sleeps uninterruptibly until what it spawns has opened it
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "fifo", os.O_RDONLY, 0)])

def step():
    all_reduce(engine.global_steps)
    engine._take_model_step()

first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
rank = int(os.environ["RANK"])
engine, *_ = deepspeed.initialize()
for _ in range(3):
    step()
if first and rank == 1:
    exec(os.environ["FAULT"])
for _ in range(3):
    step()
print("trained", flush=True)
"""
# What rank 1 does after three steps, by the words of the page, which has what is said of it.
FAULTS = {
    "sleeps in code of its own": "asleep()",
    "spins in C code and holds the interpreter's lock": "spinning()",
    "is stopped (SIGSTOP)": "os.kill(os.getpid(), signal.SIGSTOP)",
    "sleeps uninterruptibly (state D)": "in_the_kernel()",
    "waits for its data loader": "dataloader._get_data()",
    "has come to another collective": "barrier()",
    "misses the second collective": "step(); asleep()",
}
PAGE = (ROOT / "docs/hangs.md").read_text()
ROWS = dict(re.findall(r"^\| ([^|]+) \| `([^|`]+)` \|$", PAGE, re.MULTILINE))


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """Modules that stand for those of an image."""
    place = tmp_path / "users"
    for name, text in {
        "deepspeed.py": DEEPSPEED,
        "torch/distributed/collectives.py": COLLECTIVES,
        "torch/utils/data/dataloader.py": DATALOADER,
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place


def patient(directory: Path) -> Path:
    """An agent that waits longer for the stacks of all ranks, as a busy machine takes longer."""
    return altered(directory, EVIDENCE_SECONDS=60, WITHIN_SECONDS=5, QUIET_SECONDS=0.5)


def hanging(gang: Make, users: Path, fault: str, limits: dict[str, Any], **fields: Any) -> list[Running]:
    """Start a gang of three ranks, of which rank 1 meets the fault."""
    launch = {"hang": limits, "failurePolicy": failure_policy()}
    made = gang(script=TRAIN, launch=launch, agent=patient(users.parent), **{"slots": 3, **fields})
    return made.start_all(PYTHONPATH=str(users), FAULT=fault)


def test_the_page_has_all_of_them() -> None:
    assert ROWS.keys() == FAULTS.keys()


@pytest.mark.parametrize("fault", FAULTS)
def test_who_is_behind_and_where_is_said_and_the_ranks_start_again(gang: Make, users: Path, fault: str) -> None:
    (pod,) = hanging(gang, users, FAULTS[fault], hang(progressSeconds=LIMIT))
    ended, words = pod.end(ENDS), re.escape(ROWS[fault]).replace("…", "[^)]*")
    assert re.search(rf"round 2 begins: Hang(?: in pod pretrain-1-0)?: {words}; no step for", ended.output)
    assert f"limit {LIMIT} s; restart 1 of" in ended.output
    assert (ended.code, ended.cause["reason"]) == (0, "Completed")
    last = ended.cause["rounds"]["last"]
    certain = "perhaps" not in words
    assert (last["reason"], last["rank"], last["node"]) == ("Hang", *((1, "node0") if certain else (None, None)))


@pytest.mark.parametrize("python", interpreters())
def test_the_stacks_of_all_ranks_are_in_the_log_of_their_pod_on_every_python(
    gang: Make, users: Path, python: str
) -> None:
    pods = hanging(gang, users, "asleep()", hang(progressSeconds=LIMIT), python=python, slots=1, nodes=3)
    ended = [pod.end(ENDS) for pod in pods]
    for rank, name in enumerate(("all_reduce", "asleep", "all_reduce")):
        of_rank = rf"hang: rank {rank}, process \d+, state [SR].*\n(?:.*(?:hread 0x|  File ).*\n)+"
        (told,) = re.findall(of_rank, ended[rank].output)
        assert "phase Step after step 503" in told
        assert f"in {name}\n" in told
    last = ended[0].cause["rounds"]["last"]
    assert (last["rank"], last["pod"], last["node"]) == (1, "pretrain-1-1", "node1")


def test_without_a_given_limit_nothing_is_judged_before_it_is_learned(gang: Make, users: Path) -> None:
    (pod,) = hanging(gang, users, "print('waits', flush=True); asleep()", hang(restart=True))
    pod.wait_for_output("waits")
    state = pod.get("/state")[1]
    assert state["hang"] is None


SLOW = """\
import os, time, deepspeed
def slow(phase):
    return {seconds} if phase == {slow!r} else 0
time.sleep(slow("starts"))  # as a program that tokenizes
engine, *_ = deepspeed.initialize()
time.sleep(slow("makes its first step"))
for _ in range(20):
    engine._take_model_step()
engine.eval()
time.sleep(slow("evaluates"))
engine.train()
engine.save_checkpoint(slow("saves"))
engine._take_model_step()
if os.environ["RANK"] == "1":
    engine.save_checkpoint(slow("saves while the other one has ended"))
"""


@pytest.mark.parametrize(
    "slow", ["starts", "makes its first step", "evaluates", "saves", "saves while the other one has ended"]
)
def test_what_is_slow_but_has_no_limit_is_no_hang(gang: Make, users: Path, slow: str) -> None:
    script = SLOW.format(seconds=LIMIT + 1, slow=slow)
    made = gang(nodes=2, script=script, launch={"hang": hang(progressSeconds=LIMIT, restart=True)})
    for ended in [pod.end(ENDS) for pod in made.start_all(PYTHONPATH=str(users))]:
        assert (ended.code, "hang: " in ended.output) == (0, False), ended.output


@pytest.mark.parametrize("before", ["engine, *_ = deepspeed.initialize()", ""])
def test_a_start_that_takes_longer_than_it_may_is_a_hang(gang: Make, users: Path, before: str) -> None:
    script = f"""\
import os, time, deepspeed
{before}
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    time.sleep(600)
"""
    launch = {"hang": hang(firstStepSeconds=LIMIT_OF_A_START), "failurePolicy": failure_policy()}
    ended = gang(script=script, launch=launch, agent=patient(users.parent)).start(PYTHONPATH=str(users)).end(ENDS)
    assert "rank 0 is in train.py:4 (<module>); no first step for" in ended.output
    assert ended.code == 0


def test_saving_that_takes_longer_than_it_may_is_a_hang(gang: Make, users: Path) -> None:
    script = """\
import os, deepspeed
engine, *_ = deepspeed.initialize()
engine._take_model_step()
engine.save_checkpoint(600 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else 0)
"""
    launch = {"hang": hang(checkpointSeconds=LIMIT), "failurePolicy": failure_policy()}
    ended = gang(script=script, launch=launch, agent=patient(users.parent)).start(PYTHONPATH=str(users)).end(ENDS)
    assert "rank 0 is in deepspeed.py:9 (save_checkpoint); saving for" in ended.output


def test_a_program_without_an_engine_that_tells_its_steps_is_judged_by_them(gang: Make, tmp_path: Path) -> None:
    script = """\
import json, os, time
for step in (1, 2, 3):
    with open(os.environ["DEEPSPEED_OPERATOR_PROGRESS"], "a") as file:
        print(json.dumps({"step": step}), file=file, flush=True)
while os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    print("still there", flush=True)  # which is no step
    time.sleep(0.05)
"""
    launch = {"hang": hang(progressSeconds=LIMIT, firstStepSeconds=120), "failurePolicy": failure_policy()}
    ended = gang(script=script, launch=launch, agent=patient(tmp_path)).start().end(ENDS)
    assert "Hang in pod pretrain-1-0: rank 0 is in train.py:7 (<module>); no step for" in ended.output
    assert ended.code == 0


def test_a_program_that_tells_nothing_is_not_judged(gang: Make) -> None:
    launch = {"hang": hang(progressSeconds=0.1, checkpointSeconds=0.1, restart=True)}
    (ended,) = gang(script="import time; time.sleep(1)", launch=launch).run()
    assert (ended.code, "hang: " in ended.output) == (0, False), ended.output
