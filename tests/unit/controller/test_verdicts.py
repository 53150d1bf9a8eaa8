"""Runs are judged apart, equal ones once, and what costs too much is set aside."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import ANY

import pytest

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.controller import judges, verdicts
from deepspeed_operator.controller.clock import now
from deepspeed_operator.controller.judges import Judges
from deepspeed_operator.controller.verdicts import FIRST_PAUSE, Verdicts
from deepspeed_operator.reconcile.actions import JudgeRun
from deepspeed_operator.reconcile.admission.question import Admission, admission
from deepspeed_operator.reconcile.observe.observed import Facts, Observed, SetAside
from deepspeed_operator.reconcile.observe.unanswered import Unanswered
from tests.unit.controller.test_judges import compute, drive
from tests.unit.reconcile.simulation import INSTALLATION, job


def asked(given: DeepSpeedJob) -> JudgeRun:
    return question_of(Observed(given, (), Facts(), now()))


def question_of(observed: Observed) -> JudgeRun:
    with pytest.raises(Unanswered) as raised:
        admission(observed, INSTALLATION)
    (question,) = raised.value.questions
    assert isinstance(question, JudgeRun)
    return question


def named(name: str, **spec: Any) -> DeepSpeedJob:
    given = job(**spec)
    return given.model_copy(update={"metadata": given.metadata.model_copy(update={"name": name})})


def with_verdicts(test: Callable[[Verdicts], Awaitable[None]]) -> None:
    async def run(called: Judges) -> None:
        await test(Verdicts(called, INSTALLATION))

    drive(run)


def test_jobs_that_differ_in_name_alone_are_judged_once() -> None:
    assert asked(named("first")).digest == asked(named("other", runId="again", suspend=True)).digest
    assert asked(named("first")).digest != asked(named("first", nodes=4)).digest

    async def test(judged: Verdicts) -> None:
        first, other = await asyncio.gather(*(judged.of("ml", asked(named(name))) for name in ("first", "other")))
        assert isinstance(first.answer, Admission)
        assert first.answer.accepted
        assert first is other

    with_verdicts(test)


def too_much(*_: Any) -> None:
    compute(60.0)


def test_a_job_that_costs_too_much_is_set_aside_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges, "QUICK_SECONDS", 0.05)
    monkeypatch.setattr(judges, "PATIENT_SECONDS", 0.05)
    monkeypatch.setattr(verdicts, "judge_run", too_much)
    moment = now()
    monkeypatch.setattr(verdicts, "now", lambda: moment)

    async def test(judged: Verdicts) -> None:
        nonlocal moment
        for wait in (FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE):
            found = (await judged.of("ml", asked(job()))).answer
            assert found == SetAside("judging it takes more than 0.05 s of CPU time", moment + wait)
            assert (await judged.of("ml", asked(job()))).answer is found
            moment += wait

    with_verdicts(test)


def test_a_job_that_was_set_aside_is_asked_about_when_its_time_has_come_or_it_has_changed() -> None:
    moment, given = now(), job()
    question = asked(given)
    aside = SetAside("why", moment + timedelta(seconds=30))
    facts = Facts(judged=verdicts.JudgedRun(question.digest, aside))
    assert admission(Observed(given, (), facts, moment), INSTALLATION) == aside
    assert question_of(Observed(given, (), facts, aside.until)) == replace(question, observed=ANY)
    assert question_of(Observed(job(nodes=4), (), facts, moment)).digest != question.digest
