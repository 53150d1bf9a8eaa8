"""What the agents decide about their rounds and the operator about an attempt: one table for both."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deepspeed_operator.api.failure_policy import FailurePolicy
from deepspeed_operator.api.restarts import RepeatedFailure
from deepspeed_operator.api.status import Failure
from deepspeed_operator.job.failure_rules import Budget, FailureCause
from deepspeed_operator.reconcile.failure.attempt_end import Failed
from deepspeed_operator.reconcile.failure.restart_policy import FailRun, NewAttempt, RunRecord, decide, key_of

CASES: dict[str, Any] = json.loads((Path(__file__).parents[2] / "restart_cases.json").read_text())
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEALTHY_SECONDS = 600


def is_for_both(case: dict[str, Any]) -> bool:
    """Whether it is about budgets and repeated failures: about their pods, pauses and rules the agents' cases are."""
    of_pods = any("node" in failure or "reason" in failure for failure in case["failures"])
    return case["policy"].keys() <= {"restarts", "repeated"} and not of_pods


@pytest.mark.parametrize("case", CASES["keys"], ids=lambda case: case["same"][0][1])
def test_failures_that_differ_in_numbers_alone_are_the_same(case: dict[str, Any]) -> None:
    keys = {key_of(FailureCause(reason, signature=text)) for reason, text in case["same"]}
    assert keys == {case["key"]}


@pytest.mark.parametrize("case", list(filter(is_for_both, CASES["runs"])), ids=lambda case: case["name"])
def test_what_follows_one_failure_after_the_other(case: dict[str, Any]) -> None:
    limits = {"user": 9, "infrastructure": 20, **case["policy"].get("restarts", {})}
    policy = FailurePolicy(max_restarts=limits["user"], max_infrastructure_restarts=limits["infrastructure"])
    repeated = RepeatedFailure(**case["policy"].get("repeated", {}))
    used = {Budget.USER: 0, Budget.INFRASTRUCTURE: 0}
    for failure in case["failures"]:
        failed = Failure(
            reason="RankFailed", exit_code=failure.get("exitCode"), signal=failure.get("signal"), message="it failed"
        )
        progressed = failure.get("stepped")
        if progressed is None:
            progressed = failure.get("seconds", 1) >= HEALTHY_SECONDS
        record = RunRecord(
            used, repeated, progressed=progressed, in_a_row=1, seed="", saved=failure.get("saved", False)
        )
        decision = decide(Failed(failed, failure.get("signature", "")), policy, record, NOW)
        if failure["then"] == "end":
            assert isinstance(decision, FailRun)
            return
        assert isinstance(decision, NewAttempt)
        budget = Budget(failure["then"])
        assert decision.budget is budget
        used[budget] += 1
        repeated = decision.repeated
