"""Agents on nodes whose clocks differ."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import Gang, load

Make = Callable[..., Gang]
TEN_MINUTES = 600
# Rank 2 fails after rank 1, by a lost connection, and is heard of first.
SCRIPT = """\
import os, sys, time
rank = os.environ["RANK"]
if rank == "1":
    time.sleep(1)
    sys.exit("ValueError: the loss is nan")
if rank == "2":
    time.sleep(1.2)
    sys.exit("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer")
time.sleep(60)
"""


def ahead(gang: Gang, seconds: int) -> tuple[str, ...]:
    return (gang.python, "-S", "-u", str(Path(__file__).with_name("shifted_clock.py")), str(seconds))


@pytest.mark.parametrize("shifted", [0, 1, 2])
@pytest.mark.parametrize("seconds", [TEN_MINUTES, -TEN_MINUTES])
def test_the_same_rank_is_named_and_the_difference_is_told(gang: Make, shifted: int, seconds: int) -> None:
    made = gang(nodes=3, script=SCRIPT)
    running = [made.start(at, wrapper=ahead(made, seconds) if at == shifted else ()) for at in range(3)]
    for each in running:
        cause = each.end().cause
        assert (cause["rank"], cause["signature"]) == (1, "ValueError: the loss is nan")
        assert list(cause["clocks"]) == [str(shifted)]
        assert abs(cause["clocks"][str(shifted)] - seconds) < 1


def clocks(*ahead: float | None) -> dict[str, float]:
    made: Any = load("dso_clocks").Clocks()
    for index, seconds in enumerate(ahead):
        made.take(index, seconds)
    return made.apart


def test_where_the_hubs_own_clock_is_wrong_it_is_the_one_that_is_told() -> None:
    assert clocks(0.0, 600.1, 600.0, 599.9) == {"0": -600.0}


def test_clocks_that_are_not_known_or_hardly_differ_are_not_told() -> None:
    assert clocks(0.0, None, 0.4, -0.9) == {}


def test_the_clock_of_another_pod_in_its_place_is_another_one() -> None:
    made: Any = load("dso_clocks").Clocks()
    for index, seconds in ((0, 0.0), (1, 5.0), (2, 0.0), (1, None)):
        made.take(index, seconds)
    assert made.apart == {}


def test_of_many_clocks_the_furthest_are_told() -> None:
    told = clocks(*[0.0] * 50, *[float(seconds) for seconds in range(2, 22)])
    assert list(told.values()) == [float(seconds) for seconds in range(6, 22)]
