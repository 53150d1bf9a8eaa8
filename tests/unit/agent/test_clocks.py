"""Agents on nodes whose clocks differ."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import AWAIT, Gang, altered, launch_of, load

Make = Callable[..., Gang]
TEN_MINUTES = 600
# Rank 2 fails after rank 1, by a lost connection, and is heard of first.
SCRIPT = f"""\
{AWAIT}
while not all(os.path.islink(f"rank-{{each}}") for each in range(3)):
    time.sleep(0.02)
if rank == 1:
    time.sleep(1)  # until the hub has heard of all clocks
    sys.exit("ValueError: the loss is nan")
if rank == 2:
    wait_for_the_end_of(1)
    sys.exit("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer")
time.sleep(60)
"""


def started_ahead(gang: Gang, seconds: int) -> tuple[str, ...]:
    return (gang.python, "-S", "-u", str(Path(__file__).with_name("shifted_clock.py")), str(seconds))


@pytest.mark.parametrize("shifted", [0, 1, 2])
@pytest.mark.parametrize("seconds", [TEN_MINUTES, -TEN_MINUTES])
def test_the_same_rank_is_named_and_the_difference_is_told(
    gang: Make, tmp_path: Path, shifted: int, seconds: int
) -> None:
    # However long the calls take that tell the clocks, and the report of rank 1.
    agent = altered(tmp_path, EXACT_SECONDS=60, APART_SECONDS=60, SETTLE_SECONDS=60)
    made = gang(nodes=3, script=SCRIPT, agent=agent)
    running = [made.start(at, wrapper=started_ahead(made, seconds) if at == shifted else ()) for at in range(3)]
    for each in running:
        cause = each.end().cause
        assert (cause["rank"], cause["signature"]) == (1, "ValueError: the loss is nan")
        assert list(cause["clocks"]) == [str(shifted)]
        assert abs(cause["clocks"][str(shifted)] - seconds) < 60


@pytest.mark.parametrize(("trip", "ahead"), [(0.4, 600.0), (0.6, None)])
def test_a_clock_is_compared_with_the_middle_of_a_short_call(
    monkeypatch: pytest.MonkeyPatch, trip: float, ahead: float | None
) -> None:
    member: Any = load("dso_member").Member(launch_of(2), lambda: None)
    monkeypatch.setattr("time.time", lambda: 1600.2)
    member._compare_clocks(1000.0, trip)
    assert member.ahead == (ahead and pytest.approx(ahead))


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
