"""What `dsjob debug --stacks` shows of the answers of a gang."""

from typing import Any

from deepspeed_operator.cli.debug import lines


def rank(number: int, stacks: str, **more: Any) -> dict[str, Any]:
    process = {"pid": 100 + number, "state": "S", "place": "", "command": "python3 train.py", "stacks": stacks}
    return {**process, "rank": number, "children": [], **more}


def at(place: str, address: str) -> str:
    return f'Current thread 0x{address} (most recent call first):\n  File "train.py", line {place}\n'


def test_ranks_at_one_place_are_shown_together_and_the_fewest_first() -> None:
    ranks = [rank(number, at("9 in all_reduce", f"7f{number}")) for number in (3, 0, 1, 5)]
    assert list(lines([*ranks, rank(2, at("88 in loading", "7fa"))])) == [
        "rank 2",
        "  Current thread … (most recent call first):",
        '    File "train.py", line 88 in loading',
        "ranks 0-1, 3, 5",
        "  Current thread … (most recent call first):",
        '    File "train.py", line 9 in all_reduce',
    ]


def test_a_rank_that_cannot_answer_says_why() -> None:
    sleeps = rank(0, "", state="D", place="fuse_wait")
    foreign = rank(1, "", children=[rank(7, "", command="sh -c true")])
    assert list(lines([sleeps, foreign])) == [
        "rank 0",
        "  is in uninterruptible sleep in fuse_wait of the kernel, and answers nobody",
        "rank 1",
        "  tells of no stacks: it is no Python program, or has yet to start",
        "  its process sh -c true",
        "    tells of no stacks: it is no Python program, or has yet to start",
    ]
