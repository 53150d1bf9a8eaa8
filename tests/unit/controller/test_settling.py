"""A job's questions may be many, and must come to an end."""

from dataclasses import replace

import pytest

from deepspeed_operator.controller import settling
from deepspeed_operator.controller.settling import Settling, UnsettledError
from deepspeed_operator.reconcile.actions import DryRunPod, JudgeRun, ReadConfigMap
from deepspeed_operator.reconcile.observe.observed import Facts, Observed
from tests.unit.reconcile.simulation import Simulation, job


def ask(asked: Settling, *questions: settling.Question[object], generation: int = 1) -> None:
    asked.check(questions, generation)
    asked.answered(questions)


def test_questions_may_be_as_many_as_there_are_things_to_ask() -> None:
    asked = Settling()
    for number in range(200):
        ask(asked, ReadConfigMap(f"map-{number}"))
    ask(asked, ReadConfigMap("map-7"), ReadConfigMap("another"))


def test_a_pass_that_asks_what_was_just_answered_is_the_defect() -> None:
    asked = Settling()
    ask(asked, ReadConfigMap("a"))
    ask(asked, ReadConfigMap("b"))
    with pytest.raises(UnsettledError, match="ReadConfigMap is asked again right after it was answered"):
        ask(asked, ReadConfigMap("a"), ReadConfigMap("b"))


def test_what_a_question_carries_along_makes_it_no_other_one() -> None:
    asked = Settling()
    observed = Observed(job(), (), Facts(), Simulation(job()).now)
    for one, same in (
        (JudgeRun(observed, "digest"), JudgeRun(replace(observed, pods=()), "digest")),
        (DryRunPod({"metadata": {}}, "digest", "likeness", 2, False), DryRunPod({}, "digest", "likeness", 2, False)),
    ):
        ask(asked, one)
        with pytest.raises(UnsettledError):
            ask(asked, same)


def test_a_spec_that_is_changed_and_changed_back_has_the_same_asked_again() -> None:
    asked = Settling()
    ask(asked, ReadConfigMap("a"), generation=1)
    ask(asked, ReadConfigMap("b"), generation=2)
    ask(asked, ReadConfigMap("a"), generation=3)


def test_an_answer_that_has_become_old_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 100.0
    monkeypatch.setattr(settling, "steady", lambda: moment)
    asked = Settling()
    ask(asked, ReadConfigMap("a"))
    moment += settling.LASTS_SECONDS
    ask(asked, ReadConfigMap("a"))
