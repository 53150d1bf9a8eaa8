"""After which failures ranks start again in their pods. The operator's tests read the same table."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import failure_policy, load, rule

policy = load("dso_policy")
CASES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "restart_cases.json").read_text())
BACKOFF = {"baseSeconds": 10, "maxSeconds": 300, "healthySeconds": 600}


@pytest.mark.parametrize("case", CASES["keys"], ids=lambda case: case["same"][0][1])
def test_failures_that_differ_in_numbers_alone_are_the_same(case: dict[str, Any]) -> None:
    keys = {policy.key_of({"reason": reason, "signature": text}) for reason, text in case["same"]}
    assert keys == {case["key"]}


@pytest.mark.parametrize("case", CASES["runs"], ids=lambda case: case["name"])
def test_what_follows_one_failure_after_the_other(case: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"backoff": BACKOFF, **case["policy"]}
    if "rules" in fields:
        fields["rules"] = [rule(**each) for each in fields["rules"]]
    given = policy.FailurePolicy(failure_policy(**fields))
    record = policy.first_record(given)
    for failure in case["failures"]:
        cause = {"reason": "RankFailed", "exitCode": None, "signal": None, "signature": "", "node": None, **failure}
        before = record.counts
        record = policy.judge(
            given, record, cause, failure.get("stepped"), failure.get("seconds", 1), saved=failure.get("saved", False)
        ).record
        if failure["then"] == "end":
            assert record is None
            return
        assert [budget for budget in before if record.counts[budget] > before[budget]] == [failure["then"]]
        if "pause" in failure:
            assert given.pause(record.unhealthy, 0) == failure["pause"]


def test_a_pause_is_some_fifth_longer_or_shorter() -> None:
    given = policy.FailurePolicy(failure_policy(backoff=BACKOFF))
    assert [given.pause(2, jitter) for jitter in (-1, 0, 1)] == [8, 10, 12]
    assert given.pause(10_000, 0) == 300


def test_a_pattern_of_a_newer_python_matches_nothing_where_it_is_not_known() -> None:
    assert not policy.found("(unclosed", "(unclosed")
