"""Whom ranks that timed out had waited for, and what it printed last."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import Gang, altered, load

late = load("dso_late")
Make = Callable[..., Gang]

TOLD = (
    "[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, OpType={what}, NumelIn=1, "
    "NumelOut=1, Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
)
NAMES = {0: "pod a-1-0 on node n0", 1: "pod a-1-1 on node n1"}
TOKENIZING = "Running tokenizer on dataset:   9%|9  | 280000/2969526"


def cause(rank: int, text: str | None = None, reason: str = "NcclTimeout") -> dict[str, Any]:
    words = TOLD.format(rank=rank, number=7, what="ALLREDUCE") if text is None else text
    return {"reason": reason, "rank": rank, "signature": words}


def rank(number: int, told: str = "", last: str = "step 6", ago: int | None = 600) -> dict[str, Any]:
    return {"rank": number, "told": told, "last": last, "ago": ago}


def waiting(number: int, at: int = 7, what: str = "ALLREDUCE") -> dict[str, Any]:
    return rank(number, TOLD.format(rank=number, number=at, what=what))


def test_the_rank_that_had_not_arrived_and_what_it_printed_last() -> None:
    pods = {0: [rank(0, last=TOKENIZING, ago=1860), waiting(1)], 1: [waiting(2), waiting(3)]}
    assert late.waited_for(cause(2), pods, NAMES) == (
        "ranks 1 to 3 waited 600 s in ALLREDUCE 7: rank 0 in pod a-1-0 on node n0 had not arrived; its last output "
        f"31 min before: '{TOKENIZING}'"
    )


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ({0: [waiting(0), waiting(1)], 1: [rank(2), rank(3, last="")]}, "rank 2 in pod a-1-1 on node n1 had not"),
        ({0: [waiting(0)], 1: [rank(1, last="", ago=None)]}, "had not arrived; it has printed nothing"),
        ({0: [waiting(0)], 1: [waiting(1)]}, "all ranks waited in ALLREDUCE 7"),
        ({0: [waiting(0)], 1: [waiting(1, 8, "ALLGATHER")]}, "different collectives (ALLGATHER 8, ALLREDUCE 7)"),
        ({0: [waiting(0), rank(1)], 1: [rank(2), rank(3)]}, "[Rank 0] Watchdog caught"),  # too few tell anything
        ({}, "[Rank 0] Watchdog caught"),
    ],
)  # fmt: skip
def test_others(pods: dict[int, Any], words: str) -> None:
    assert words in late.waited_for(cause(0), pods, NAMES)


def test_a_monitored_barrier_names_them_itself() -> None:
    words = "RuntimeError: [Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 2000000 ms"
    pods = {0: [rank(0, words), rank(1)], 1: [rank(2, last="loading shard 7", ago=40), rank(3)]}
    said = late.waited_for(cause(0, words), pods, NAMES)
    assert (
        "rank 2 in pod a-1-1 on node n1 had not arrived (nor rank 3); its last output 40 s before: 'loading shard 7'"
        in said
    )


def test_a_gang_of_agents_tells_who_was_late(gang: Make, tmp_path: Path) -> None:
    told = TOLD.format(rank=1, number=7, what="ALLREDUCE")
    script = (
        "import os, sys, time\n"
        "if os.environ['RANK'] == '0':\n"
        f"    print({TOKENIZING!r}, flush=True)\n"
        "    time.sleep(60)\n"
        "while not os.path.exists('printed'):\n"
        "    time.sleep(0.02)\n"
        f"print('terminate called after throwing it'); print('  what():  ' + {told!r}, flush=True)\n"
        "os.abort()\n"
    )
    made = gang(nodes=2, script=script, agent=altered(tmp_path, TIMEOUT_SETTLE_SECONDS=10))
    running = made.start_all()
    running[0].wait_for_output(TOKENIZING)
    (made.code / "printed").touch()
    for each in [each.end() for each in running]:
        assert (each.cause["reason"], each.cause["rank"], each.cause["signal"]) == ("NcclTimeout", 1, 6)
        assert "rank 1 waited 600 s in ALLREDUCE 7: rank 0 in pod pretrain-1-0 on node node0" in each.cause["signature"]
        assert f"'{TOKENIZING}'" in each.cause["signature"]


def test_a_rank_of_which_nothing_is_heard_leaves_the_words_as_they_are() -> None:
    words = "RuntimeError: [Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 2000000 ms"
    assert late.waited_for(cause(0, words), {0: [rank(0, words), rank(1)]}, NAMES) == words
