"""Where an attempt's wall time goes, by a clock that the test winds."""

from typing import Any

from tests.unit.agent.harness import load

KINDS = ("starting", "restarting", "productive", "repeated", "saving", "hung")


class Rank:
    """Rank 0 of one round, as its record in shared memory tells of it."""

    def __init__(self, time: Any, number: int, begins: float, step: int = 0) -> None:
        self.time, self.round, self.now, self.step = time, number, begins, step
        self.first, self.taken, self.saving, self.counted = 0.0, 0, 0.0, True

    def steps(self, count: int, seconds: float) -> "Rank":
        for _ in range(count):
            self.now += seconds
            self.step, self.taken, self.first = self.step + 1, self.taken + 1, self.first or self.now
        return self

    def saves(self, seconds: float) -> "Rank":
        self.now, self.saving = self.now + seconds, self.saving + seconds
        return self

    def seen(self) -> None:
        given = {"first": self.first, "taken": self.taken, "saving": self.saving, "counted": self.counted}
        self.time.look(self.round, load("dso_walltime").LastStep(self.step, self.now, **given))


def wall_time(reached: int = 0) -> Any:
    return load("dso_walltime").WallTime(100.0, reached)


def told(time: Any, now: float) -> dict[str, float]:
    """The kinds that have any seconds."""
    summary: dict[str, float] = time.summary(now)
    return {kind: summary[kind] for kind in KINDS if summary[kind]}


def test_nothing_is_told_before_the_first_step() -> None:
    time = wall_time()
    time.look(1, None)
    assert time.summary(150.0) is None


def test_the_first_step_ends_the_start_however_late_it_is_seen() -> None:
    time = wall_time()
    Rank(time, 1, 120.0).steps(11, 2.0).seen()
    assert told(time, 150.0) == {"starting": 22.0, "productive": 20.0}
    assert time.summary(150.0)["secondsSince"] == 8.0
    assert time.summary(150.0)["reached"] == 11


def test_a_save_counts_once_it_has_ended_also_before_another_step() -> None:
    time = wall_time()
    rank = Rank(time, 1, 100.0).steps(5, 1.0).saves(4.0)
    rank.seen()
    assert told(time, 110.0) == {"starting": 1.0, "productive": 4.0, "saving": 4.0}
    rank.steps(3, 1.0).seen()
    assert told(time, 113.0) == {"starting": 1.0, "productive": 7.0, "saving": 4.0}


def test_what_a_failure_interrupts_was_for_nothing_and_steps_before_the_last_one_are_repeated() -> None:
    time = wall_time()
    Rank(time, 1, 100.0).steps(10, 1.0).seen()
    time.end_round("RankFailed", 115.0)
    again = Rank(time, 2, 120.0, step=6)  # from a checkpoint of step 6
    again.steps(1, 2.0).seen()
    again.steps(9, 1.0).seen()  # steps 8 to 16, of which 8, 9 and 10 were made before
    assert told(time, 131.0) == {"starting": 1.0, "productive": 15.0, "restarting": 12.0, "repeated": 3.0}
    assert sum(told(time, 131.0).values()) == 31.0


def test_a_counter_that_begins_anew_with_each_start_repeats_nothing() -> None:
    time = wall_time()
    Rank(time, 1, 100.0).steps(10, 1.0).seen()
    again = Rank(time, 2, 110.0)
    again.counted = False
    again.steps(10, 1.0).seen()
    assert told(time, 120.0) == {"starting": 1.0, "productive": 18.0, "restarting": 1.0}


def test_steps_of_an_earlier_attempt_are_repeated() -> None:
    time = wall_time(reached=4)
    Rank(time, 1, 100.0).steps(6, 1.0).seen()
    assert told(time, 106.0) == {"starting": 1.0, "repeated": 3.0, "productive": 2.0}


def test_from_the_last_step_to_its_detection_a_hang_is_one() -> None:
    time = wall_time()
    Rank(time, 1, 100.0).steps(5, 1.0).seen()
    time.end_round("NcclTimeout", 165.0)
    Rank(time, 2, 170.0, step=5).steps(1, 3.0).seen()
    assert told(time, 173.0) == {"starting": 1.0, "productive": 4.0, "hung": 60.0, "restarting": 8.0}


def test_after_the_last_step_of_a_run_that_succeeds_nothing_is_lost() -> None:
    time = wall_time()
    Rank(time, 1, 100.0).steps(5, 1.0).seen()
    time.succeed(108.0)
    assert told(time, 120.0) == {"starting": 1.0, "productive": 7.0}


def test_another_hub_counts_since_the_last_step_and_not_since_the_last_answer() -> None:
    time = wall_time()
    Rank(time, 1, 100.0).steps(10, 1.0).seen()
    later = load("dso_walltime").WallTime(7.0, 0)
    later.resume(time.summary(115.0), 30.0, 20.0)  # 5 s since the last step when it was told, 20 s ago
    Rank(later, 2, 35.0, step=10).steps(1, 1.0).seen()
    assert told(later, 36.0)["restarting"] == 31.0


def test_another_hub_goes_on_from_what_its_members_know() -> None:
    time = wall_time()
    Rank(time, 1, 100.0).steps(10, 1.0).seen()
    before = time.summary(110.0)
    later = load("dso_walltime").WallTime(7.0, 0)  # by the clock of another machine
    later.resume(before, 30.0, 20.0)
    later.resume(before, 31.0, 21.0)
    Rank(later, 3, 35.0, step=5).steps(6, 1.0).seen()
    assert told(later, 41.0) == {"starting": 1.0, "productive": 10.0, "restarting": 26.0, "repeated": 4.0}
