"""A pod is lost while its gang trains: the others wait for the one that takes its place, and all start again."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.agent.harness import Gang, Running, rule
from tests.unit.agent.test_rounds import restarting, round_of, starts

Make = Callable[..., Gang]
TRAINS = """
while restarts == 0:
    time.sleep(0.1)
"""
REPLACES = {"replacementSeconds": 60, "rules": [rule(inPlace=False, reasons=["DeviceFault"]), rule()]}


def replacement(lost: Running, number: int = 1, fenced: str = "true") -> Running:
    """The operator makes another pod in the place of this one."""
    named = {"DEEPSPEED_OPERATOR_POD": f"pretrain-1-{lost.index}-r{number}"}
    named |= {"DEEPSPEED_OPERATOR_POD_UID": f"uid-1-{lost.index}-r{number}", "DEEPSPEED_OPERATOR_FENCED": fenced}
    return lost.gang.start(lost.index, wrapper=(), **named, DEEPSPEED_OPERATOR_REPLACEMENT=str(number))


def waits(running: Running) -> None:
    running.wait_for(lambda: round_of(running) == 2 and running.get("/state")[1]["phase"] == "Waiting")


def started(running: list[Running], nodes: int) -> list[Running]:
    """The gang, once all of its ranks have started for the first time."""
    for rank, each in enumerate(running):
        each.wait_for_output(f"start 0 of rank {rank}")
        each.wait_for(lambda rank=rank: (running[0].gang.code / f"started-0-{rank}").exists())
    assert len(running) == nodes
    return running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["told to end", "killed"])
def test_the_others_wait_for_the_pod_that_takes_the_lost_ones_place(gang: Make, number: int) -> None:
    running = started(restarting(gang, TRAINS, nodes=3, policy=REPLACES).start_all(), 3)
    lost, stays = running[1], [running[0], running[2]]
    lost.signal(number)
    lost.process.wait(30)
    if number == signal.SIGTERM:
        assert lost.end().cause["reason"] == "Terminated"
        for each in stays:
            waits(each)
    second = replacement(lost)
    ended = [each.end() for each in (*stays, second)]
    assert [(each.code, each.cause["reason"], each.cause["round"]) for each in ended] == [(0, "Completed", 2)] * 3
    assert starts(ended[2]) == ["1 of rank 1 at port 29501"]
    assert "[deepspeed-operator] round 2 begins" in ended[2].output
    assert "stopping" not in ended[2].output
    assert ended[0].cause["rounds"]["last"]["pod"] == "pretrain-1-1"
    assert "; restart 1 of " in ended[0].output


def test_a_pod_that_was_replaced_ends_its_ranks_when_it_comes_back(gang: Make) -> None:
    """Its node was cut off, or slept: no round begins while its ranks may write."""
    running = started(restarting(gang, TRAINS, policy=REPLACES, launch={"fenceSeconds": 12}).start_all(), 2)
    lost = running[1]
    os.killpg(lost.process.pid, signal.SIGSTOP)
    waits(running[0])
    second = replacement(lost, fenced="false")
    lost.signal(signal.SIGCONT)
    ended = lost.end()
    assert (ended.cause["reason"], ended.cause["index"]) == ("PeerLost", 1)
    assert [each.end().code for each in (running[0], second)] == [0, 0]


def test_without_a_pod_in_its_place_the_others_end_with_why_the_pod_was_lost(gang: Make) -> None:
    policy: dict[str, Any] = {**REPLACES, "replacementSeconds": 1}
    running = started(restarting(gang, TRAINS, policy=policy).start_all(), 2)
    running[1].signal(signal.SIGTERM)
    ended = [each.end() for each in running]
    assert [(each.cause["reason"], each.cause["index"]) for each in ended] == [("Terminated", 1)] * 2
    assert "no pod took the place of pretrain-1-1 within 1 s" in ended[0].output


def test_the_others_outlive_the_pod_of_rank_0_and_bring_the_next_one_the_round_and_the_counts(gang: Make) -> None:
    script = """
while restarts == 1:
    time.sleep(0.1)
if restarts == 0 and rank == 2:
    os.kill(os.getpid(), 9)
while restarts == 0:
    time.sleep(0.1)
"""
    policy = {**REPLACES, "rules": [rule(budget="infrastructure")]}
    running = restarting(gang, script, nodes=3, policy=policy).start_all()
    for rank, each in enumerate(running):
        each.wait_for_output(f"start 1 of rank {rank}")
    running[0].signal(signal.SIGKILL)
    running[0].process.wait(30)
    second = replacement(running[0])
    ended = [each.end() for each in (second, *running[1:])]
    assert [(each.code, each.cause["reason"], each.cause["round"]) for each in ended] == [(0, "Completed", 3)] * 3
    rounds = ended[0].cause["rounds"]
    assert (rounds["number"], rounds["infrastructure"], rounds["last"]["reason"]) == (
        3,
        2,
        "PeerLost",
    )
    assert starts(ended[0]) == ["2 of rank 0 at port 29500"]


def test_the_pod_of_rank_0_that_is_told_to_end_leaves_the_others_waiting(gang: Make) -> None:
    running = started(restarting(gang, TRAINS, nodes=3, policy=REPLACES).start_all(), 3)
    running[0].signal(signal.SIGTERM)
    assert running[0].end().cause["reason"] == "Terminated"
    for each in running[1:]:
        waits(each)
    ended = [each.end() for each in (replacement(running[0]), *running[1:])]
    assert [(each.code, each.cause["reason"], each.cause["round"]) for each in ended] == [(0, "Completed", 2)] * 3
    assert ended[0].cause["rounds"]["last"]["reason"] == "Terminated"
