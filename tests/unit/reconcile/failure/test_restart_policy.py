"""One policy decides what follows the end of an attempt."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deepspeed_operator.api.failure_policy import FailurePolicy
from deepspeed_operator.api.restarts import RepeatedFailure
from deepspeed_operator.api.status import Failure
from deepspeed_operator.job.failure_rules import Budget, FailureCause
from deepspeed_operator.reconcile.failure.attempt_end import Failed, Succeeded
from deepspeed_operator.reconcile.failure.restart_policy import (
    Complete,
    Decision,
    FailRun,
    NewAttempt,
    RunRecord,
    decide,
    key_of,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EXCEPTION = Failed(Failure(reason="RankFailed", exit_code=1, message="rank 0 exited with code 1\nlog"), "no data")
LOST = Failed(Failure(reason="NodeLost", message="pod a-1-0 on node n1 was deleted with its node"))
PREEMPTED = Failed(Failure(reason="Preempted", message="pod a-1-0 was preempted"))


def record(user: int = 0, infrastructure: int = 0, **fields: Any) -> RunRecord:
    given: dict[str, Any] = {
        "repeated": RepeatedFailure(),
        "progressed": True,
        "in_a_row": 1,
        "seed": "job-1",
        **fields,
    }
    return RunRecord(used={Budget.USER: user, Budget.INFRASTRUCTURE: infrastructure}, **given)


def decided(end: Failed, before: RunRecord | None = None, **policy: Any) -> Decision:
    return decide(end, FailurePolicy.model_validate(policy), before or record(), NOW)


def seen(end: Failed, count: int) -> RepeatedFailure:
    return RepeatedFailure(key=key_of(end.cause), count=count)


def test_success_completes_the_run() -> None:
    assert decide(Succeeded(NOW), FailurePolicy(), record(), NOW) == Complete(NOW)


def test_what_repeats_by_itself_ends_the_run_in_its_own_words() -> None:
    assert decided(EXCEPTION) == FailRun(EXCEPTION.failure)


@pytest.mark.parametrize(
    ("end", "before", "policy", "words"),
    [
        (LOST, record(), {}, "infrastructure restart 1 of 20"),
        (LOST, record(infrastructure=19), {}, "infrastructure restart 20 of 20"),
        (EXCEPTION, record(user=1, infrastructure=9), {"maxRestarts": 2}, "user restart 2 of 2"),
        (EXCEPTION, record(user=9), {"rules": [{"exitCodes": [1], "action": "RestartWithoutCounting"}]}, "not count"),
        (EXCEPTION, record(), {"rules": [{"messagePattern": "data$", "action": "Restart"}]}, "user restart 1 of 3"),
    ],
)
def test_another_attempt_follows_within_the_budget(
    end: Failed, before: RunRecord, policy: dict[str, Any], words: str
) -> None:
    decision = decided(end, before, **policy)
    assert isinstance(decision, NewAttempt)
    assert words in decision.words
    assert decision.failure == end.failure


@pytest.mark.parametrize(
    ("end", "before", "policy", "limit"),
    [
        (LOST, record(infrastructure=20), {}, "20 (spec.failurePolicy.maxInfrastructureRestarts in 24 h)"),
        (EXCEPTION, record(user=2), {"maxRestarts": 2}, "2 (spec.failurePolicy.maxRestarts)"),
    ],
)
def test_a_budget_that_is_used_up_ends_the_run_and_is_named(
    end: Failed, before: RunRecord, policy: dict[str, Any], limit: str
) -> None:
    decision = decided(end, before, **policy)
    assert isinstance(decision, FailRun)
    cause, _, log = decision.failure.message.partition("\n")
    assert cause.endswith(f"; no restart is left of {limit}")
    assert log == end.failure.message.partition("\n")[2]


def test_a_job_that_wants_no_restart_is_not_told_that_none_is_left() -> None:
    assert decided(LOST, maxInfrastructureRestarts=0) == FailRun(LOST.failure)


@pytest.mark.parametrize(
    ("end", "earlier", "progressed", "ends"),
    [
        (LOST, 2, False, True),
        (LOST, 1, False, False),
        (LOST, 2, True, False),
        (EXCEPTION, 1, False, True),
        (EXCEPTION, 1, True, False),
        (PREEMPTED, 9, False, False),
    ],
)
def test_the_same_failure_again_and_again_without_a_step_ends_the_run(
    end: Failed, earlier: int, progressed: bool, ends: bool
) -> None:
    before = record(repeated=seen(end, earlier), progressed=progressed)
    decision = decided(end, before, maxRestarts=100)
    assert isinstance(decision, FailRun) is ends
    if isinstance(decision, FailRun):
        assert f"failure {earlier + 1} of this kind in a row" in decision.failure.message


def test_another_failure_between_or_a_step_begins_the_count_anew() -> None:
    other = decided(LOST, record(repeated=seen(EXCEPTION, 2), progressed=False))
    stepped = decided(LOST, record(repeated=seen(LOST, 2)))
    disrupted = decided(PREEMPTED, record(repeated=seen(LOST, 2), progressed=False))
    assert isinstance(other, NewAttempt)
    assert isinstance(stepped, NewAttempt)
    assert isinstance(disrupted, NewAttempt)
    assert other.repeated == stepped.repeated == seen(LOST, 1)
    assert disrupted.repeated == seen(LOST, 2), "who ends pods on purpose tells nothing of the failures"


def test_failures_that_differ_in_numbers_alone_are_the_same() -> None:
    one, other = (FailureCause("RankFailed", 1, None, text) for text in ("at 0x7f3a, step 12", "at 0x11, step 7"))
    assert key_of(one) == key_of(other) != key_of(FailureCause("RankLeft", 1, None, one.signature))


def test_each_failure_soon_after_another_waits_twice_as_long_up_to_a_limit() -> None:
    waits = [decided(LOST, record(in_a_row=number), backoffSeconds=10) for number in range(9)]
    seconds = [each.not_before - NOW for each in waits if isinstance(each, NewAttempt)]
    for wait, exact in zip(seconds, (10, 10, 20, 40, 80, 160, 300, 300, 300), strict=True):
        assert timedelta(seconds=0.8 * exact) <= wait <= timedelta(seconds=1.2 * exact)
    others = [decided(LOST, record(seed=f"job-{number}", in_a_row=5)) for number in range(9)]
    begins = {each.not_before for each in others if isinstance(each, NewAttempt)}
    assert len(begins) > 1, "not all jobs of a node begin at once"


@pytest.mark.parametrize(("held_up_by", "restarts"), [("ImagePullFailed", False), (None, True)])
def test_ranks_that_did_not_start_in_time_are_judged_by_what_held_them_up(
    held_up_by: str | None, restarts: bool
) -> None:
    late = Failed(Failure(reason="StartupDeadlineExceeded", message="late"), held_up_by=held_up_by)
    assert isinstance(decided(late), NewAttempt) is restarts
    rule = {"reasons": ["StartupDeadlineExceeded"], "action": "Restart"}
    assert isinstance(decided(late, rules=[rule]), NewAttempt)
