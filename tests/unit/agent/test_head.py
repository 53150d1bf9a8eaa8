"""Where rank 0's pod decides: its success is the gang's, and the others only serve it."""

import time
from collections.abc import Callable
from pathlib import Path

from tests.unit.agent.harness import Gang, altered

Make = Callable[..., Gang]
HEAD = {"successPolicy": "Head"}
# What rank 0 does, then what the others do.
SERVE = "import os, sys, time\nif os.environ['RANK'] == '0':\n    {}\n{}"
FOREVER = "print('serving', flush=True); time.sleep(60)"


def test_the_others_are_told_to_end_once_the_head_has_succeeded(gang: Make) -> None:
    made = gang(nodes=3, script=SERVE.format("print('done'); sys.exit()", FOREVER), launch=HEAD)
    ended = made.run()
    assert [each.code for each in ended] == [0, 0, 0]
    assert [each.cause["reason"] for each in ended] == ["Completed"] * 3
    assert "the program of rank 0's pod has ended with success" in ended[1].output


def test_they_have_their_grace_to_end(gang: Make) -> None:
    saves = "import signal; signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(9)))\n"
    served = "while not os.path.exists('serves'): pass\n    sys.exit()"
    script = SERVE.format(served, saves + "open('serves', 'w').close(); " + FOREVER)
    made = gang(nodes=2, script=script, launch=HEAD)
    first, second = made.start_all()
    assert (first.end().code, second.end().code) == (0, 0)
    assert "saved" in second.output


def test_one_that_fails_before_the_head_has_ended_fails_the_gang(gang: Make) -> None:
    script = SERVE.format("time.sleep(60)", "raise ValueError('no memory for the actors')")
    ended = gang(nodes=2, script=script, launch=HEAD).run()
    assert [each.code for each in ended] == [1, 1]
    assert ended[0].cause["signature"] == "ValueError: no memory for the actors"
    assert ended[0].cause["index"] == 1


def test_one_that_fails_because_the_head_has_ended_is_no_failure(gang: Make, tmp_path: Path) -> None:
    """Either may be reported first."""
    ends = "open('ends', 'w').close(); sys.exit()"
    script = SERVE.format(ends, "while not os.path.exists('ends'): pass\nsys.exit('the head has gone')")
    ended = gang(nodes=2, script=script, launch=HEAD, agent=altered(tmp_path, SETTLE_SECONDS=60)).run()
    assert ended[0].code == 0
    assert ended[0].cause["reason"] == "Completed"


def test_a_heads_failure_that_follows_from_anothers_is_told_as_that_ones(gang: Make, tmp_path: Path) -> None:
    follows = "while not os.path.exists('failed'): time.sleep(0.02)\n    raise RuntimeError('an actor died')"
    script = SERVE.format(follows, "raise ValueError('no data')")
    made = gang(nodes=2, script=script, launch=HEAD, agent=altered(tmp_path, SETTLE_SECONDS=60))
    head, other = made.start_all()
    other.wait_for_output("rank 1 exited with code 1")
    time.sleep(0.5)  # in which the hub hears of it
    (made.code / "failed").touch()
    assert {each.end().cause["signature"] for each in (head, other)} == {"ValueError: no data"}


def test_a_worker_that_ends_with_0_before_waits_for_the_head(gang: Make) -> None:
    ended = gang(nodes=2, script=SERVE.format("time.sleep(0.5); sys.exit()", "sys.exit()"), launch=HEAD).run()
    assert [each.code for each in ended] == [0, 0]
