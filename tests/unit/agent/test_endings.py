"""How all ranks of a round ended: in the log of rank 0's pod, and for the operator."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.agent.harness import Gang, failure_policy, load

Make = Callable[..., Gang]

# None fails before all run. Rank 3 has lost its peer by then; rank 0 goes on.
SCRIPT = """\
import os, signal, sys, time
rank, round = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
open(f"started-{round}-{rank}", "w").close()
while not all(os.path.exists(f"started-{round}-{each}") for each in range(4)):
    time.sleep(0.01)
if rank == 1:
    sys.exit("ValueError: the loss is nan")
while rank > 1 and not os.path.exists(f"end-{round}"):
    time.sleep(0.01)
    if os.getppid() == 1:
        sys.exit(1)
if rank == 3:
    os.kill(os.getpid(), signal.SIGABRT)
time.sleep(60)
"""


def table(output: str, number: int) -> list[str]:
    """The lines of it in the log, without the times."""
    lines = output.replace("[deepspeed-operator] ", "").splitlines()
    begin = lines.index(f"how the ranks of round {number} ended:") + 1
    end = next(at for at in range(begin, len(lines) + 1) if at == len(lines) or not lines[at].startswith("  "))
    return [re.sub(r" +[+]\d+\.\d s", "", line) for line in lines[begin:end]]


def test_an_attempt_ends_with_it(gang: Make) -> None:
    script = SCRIPT.replace("if rank == 1:", 'if rank == 1:\n    open(f"end-{round}", "w").close()')
    ended = gang(nodes=2, slots=2, script=script, launch={"terminationGraceSeconds": 1}).run()
    lines = table(ended[0].output, 1)
    first = next(line for line in lines if "rank 1" in line)
    assert re.fullmatch(r"  rank 1  pod pretrain-1-0 on node node0  exit code 1 *  ValueError: the loss is nan", first)
    told = ended[0].cause["ranks"]
    assert told["failed"] + told["stopped"] == 4
    assert told["first"][0][:4] == [1, 0, 1, None] or told["first"][1][:4] == [1, 0, 1, None]
    assert "ranks" not in ended[1].cause


def test_so_does_a_round_whose_ranks_start_again(gang: Make) -> None:
    script = f"import os\nif os.environ['TORCHELASTIC_RESTART_COUNT'] == '1': raise SystemExit\n{SCRIPT}"
    launch = {"failurePolicy": failure_policy()}
    ended = gang(nodes=2, slots=2, script=script, launch=launch).run()
    assert [each.code for each in ended] == [0, 0]
    assert table(ended[0].output, 1) == [
        "  rank 1  pod pretrain-1-0 on node node0  exit code 1  ValueError: the loss is nan",
        "  3 stopped",
    ]
    assert "how the ranks of" not in ended[1].output


def endings(*reports: tuple[int, dict[str, Any]]) -> Any:
    made: Any = load("dso_endings").Endings()
    for index, report in reports:
        made.take(
            index, f"pod p{index} on node n{index}", {"round": 1, "failed": [], "stopped": 0, "left": 0} | report, 9
        )
    return made


def failed(rank: int | None, code: int | None, ago: float, killed: int | None = None, words: str = "") -> list[Any]:
    return [rank, code, killed, ago, words]


def test_it_is_in_the_order_of_time_whoever_tells_first() -> None:
    made = endings((1, {"failed": [failed(2, None, 1.0, 6)], "stopped": 1}), (0, {"failed": [failed(0, 1, 3.0)]}))
    assert made.table().splitlines() == [
        "how the ranks of round 1 ended:",
        "  rank 0  pod p0 on node n0  exit code 1           +0.0 s",
        "  rank 2  pod p1 on node n1  signal 6 (SIGABRT)    +2.0 s",
        "  1 stopped",
    ]
    assert made.brief() == {"failed": 2, "stopped": 1, "left": 0, "first": [[0, 0, 1, None, 0], [2, 1, None, 6, 2.0]]}


def test_what_is_told_of_many_is_bounded() -> None:
    made = endings(*[(at, {"failed": [failed(at, 1, 0.0, words="w" * 900)], "left": 1}) for at in range(300)])
    lines = made.table().splitlines()
    assert lines[-2:] == ["  280 more failed", "  300 exit code 0"]
    assert max(map(len, lines)) < 200
    assert len(made.brief()["first"]) == 10


def test_a_later_round_is_another_one_and_what_comes_late_or_twice_is_left() -> None:
    one = {"failed": [failed(0, 1, 0.0)]}
    made = endings((0, one | {"round": 2}), (0, one | {"round": 2}), (1, one))
    assert (made.round, len(made.failed), made.heard) == (2, 1, {0})


@pytest.mark.parametrize("report", [{"failed": [[1]]}, {"stopped": "x"}, {"failed": [[1, 1, None, "ago", ""]]}])
def test_what_no_agent_reports_is_not_taken(report: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        endings((0, report))
