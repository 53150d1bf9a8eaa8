"""The API server's clock, as its answers tell it."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from deepspeed_operator.controller.clock import Clock

SERVER = datetime(2026, 11, 28, 12, tzinfo=UTC)


class World:
    """A server, and a replica whose machine is wrong by some seconds."""

    def __init__(self, wrong: float) -> None:
        self.seconds = 0.0
        self.clock = Clock(lambda: 1000 + self.seconds, lambda: SERVER.timestamp() + self.seconds + wrong)

    @property
    def error(self) -> float:
        return (self.clock.now() - SERVER - timedelta(seconds=self.seconds)).total_seconds()

    def ask(self, there: float = 0.0, back: float = 0.0) -> None:
        sent_at = 1000 + self.seconds
        self.seconds += there
        date = format_datetime((SERVER + timedelta(seconds=self.seconds)).replace(microsecond=0), usegmt=True)
        self.seconds += back
        self.clock.correct(date, sent_at)


@pytest.mark.parametrize("wrong", [3600, -3600, 0.4])
def test_an_answer_tells_the_servers_time_within_a_second(wrong: float) -> None:
    world = World(wrong)
    world.seconds = 0.7
    world.ask()
    assert abs(world.error) <= 1


def test_a_slow_answer_does_not_set_a_right_clock() -> None:
    world = World(0)
    for there, back in ((20, 0), (0, 20), (9.5, 9.9)):
        world.ask(there, back)
        assert world.error == pytest.approx(0)


def test_it_does_not_tremble_with_the_parts_of_a_second() -> None:
    world = World(3600)
    errors = [world.error]
    for _ in range(50):
        world.seconds += 0.37
        world.ask(there=0.01, back=0.01)
        errors.append(world.error)
    assert errors[1:] == sorted(errors[1:], reverse=True)
    assert errors[-1] >= 0


@pytest.mark.parametrize("date", [None, "", "soon"])
def test_an_answer_without_a_date_tells_nothing(date: str | None) -> None:
    world = World(5)
    world.clock.correct(date, 1000)
    assert world.error == pytest.approx(5)
