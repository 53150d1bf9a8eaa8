"""What follows which failure: the defaults, and a job's own rules before them."""

import pytest

from deepspeed_operator.api.failure_policy import FailurePolicy, RuleAction
from deepspeed_operator.job.failure_rules import FAILURES, Budget, FailureCause, Rule, rules_of
from deepspeed_operator.render.policy_document import failure_policy
from tests.unit.reconcile.simulation import job

EXCEPTION = FailureCause("RankFailed", 1, signature="ValueError: no such shard 17")
KILLED = FailureCause("RankFailed", signal=9)


def rule_for(cause: FailureCause, **policy: object) -> Rule:
    return next(rule for rule in rules_of(job(failurePolicy=policy).spec) if rule.matches(cause))


@pytest.mark.parametrize(
    ("cause", "action", "budget", "in_place"),
    [
        (EXCEPTION, "Fail", "user", True),
        (KILLED, "Restart", "infrastructure", True),
        (FailureCause("RankFailed", 139), "Restart", "infrastructure", True),
        (FailureCause("RankLeft", 0), "Fail", "user", True),
        (FailureCause("ScriptNotFound", 2), "Fail", "user", False),
        (FailureCause("HostOutOfMemory", 137, 9), "Fail", "user", False),
        (FailureCause("SharedMemory", signal=7), "Fail", "user", False),
        (FailureCause("UserError", 1), "Fail", "user", True),
        (FailureCause("CudaOutOfMemory", 1), "Fail", "user", True),
        (FailureCause("NcclTimeout", signal=6), "Restart", "infrastructure", True),
        (FailureCause("Segfault", signal=11), "Restart", "infrastructure", True),
        (FailureCause("DeviceFault", 1), "Restart", "infrastructure", False),
        (FailureCause("FinishedThenFailed", signal=6), "Fail", "user", True),
        (FailureCause("ContainerFailed", 3), "Fail", "user", True),
        (FailureCause("NodeLost"), "Restart", "infrastructure", False),
        (FailureCause("Preempted"), "Restart", "infrastructure", False),
        (FailureCause("AgentError"), "Restart", "infrastructure", False),
        (FailureCause("TransportMismatch"), "Fail", "infrastructure", False),
        (FailureCause("ResumeMismatch"), "Fail", "user", True),
        (FailureCause("SomethingNew"), "Fail", "user", True),
    ],
)
def test_what_follows_where_the_job_says_nothing(cause: FailureCause, action: str, budget: str, in_place: bool) -> None:
    rule = rule_for(cause)
    assert (rule.action, rule.budget, rule.in_place) == (action, budget, in_place)


def test_a_job_that_sets_max_restarts_restarts_its_program() -> None:
    assert rule_for(EXCEPTION, maxRestarts=2).action is RuleAction.RESTART
    assert rule_for(FailureCause("ScriptNotFound", 2), maxRestarts=2).action is RuleAction.RESTART
    assert rule_for(FailureCause("WorldMismatch"), maxRestarts=2).action is RuleAction.FAIL, (
        "it would be the same again"
    )


def test_what_ranks_saved_that_began_apart_is_nothing_to_go_on_from() -> None:
    apart = FailureCause("ResumeMismatch", signature="the ranks did not begin from one checkpoint")
    for restarts in (None, 100):
        assert rule_for(apart, maxRestarts=restarts).action_after(saved=True) is RuleAction.FAIL
    own = {"reasons": ["ResumeMismatch"], "action": "Restart"}
    assert rule_for(apart, rules=[own]).action is RuleAction.RESTART, "who knows better may say so"


@pytest.mark.parametrize(
    ("rule", "matches", "matches_not"),
    [
        ({"exitCodes": [42]}, FailureCause("RankFailed", 42), EXCEPTION),
        ({"signals": [9]}, KILLED, FailureCause("RankFailed", signal=11)),
        ({"reasons": ["NodeLost"]}, FailureCause("NodeLost"), FailureCause("Drained")),
        ({"categories": ["Infrastructure"]}, KILLED, EXCEPTION),
        ({"categories": ["User"]}, EXCEPTION, KILLED),
        ({"categories": ["Disruption"]}, FailureCause("Preempted"), FailureCause("NodeLost")),
        ({"messagePattern": "shard [0-9]+"}, EXCEPTION, FailureCause("RankFailed", 1, signature="ValueError")),
        ({"reasons": ["RankFailed"], "categories": ["User"]}, EXCEPTION, KILLED),
        ({"exitCodes": [1], "messagePattern": "shard"}, EXCEPTION, FailureCause("RankFailed", 2, signature="shard")),
    ],
)
def test_a_rule_of_the_job_decides_about_what_it_matches_alone(
    rule: dict[str, object], matches: FailureCause, matches_not: FailureCause
) -> None:
    own = {**rule, "action": "RestartWithoutCounting"}
    assert rule_for(matches, rules=[own]).action is RuleAction.RESTART_WITHOUT_COUNTING
    assert rule_for(matches_not, rules=[own]).action is rule_for(matches_not).action


@pytest.mark.parametrize("cause", [EXCEPTION, KILLED, *(FailureCause(reason) for reason in FAILURES)])
def test_a_rule_for_everything_keeps_each_budget_and_place(cause: FailureCause) -> None:
    default, own = rule_for(cause), rule_for(cause, rules=[{"action": "Restart"}])
    assert own.action is RuleAction.RESTART
    assert (own.budget, own.in_place) == (default.budget, default.in_place)


def test_the_first_rule_decides() -> None:
    rules = [{"exitCodes": [1], "action": "Restart"}, {"reasons": ["RankFailed"], "action": "Fail"}]
    assert rule_for(EXCEPTION, rules=rules).action is RuleAction.RESTART
    assert rule_for(KILLED, rules=rules).action is RuleAction.FAIL


def test_a_reason_counts_as_its_category_says() -> None:
    by_signal = {"RankFailed", "ContainerFailed"}
    for reason, category in FAILURES.items():
        if reason not in by_signal:
            assert (rule_for(FailureCause(reason)).budget is Budget.USER) == (category == "User"), reason


def test_the_agents_get_the_same_rules_and_the_last_matches_everything() -> None:
    made = job(failurePolicy={"rules": [{"categories": ["User"], "action": "Fail"}], "backoffSeconds": 5})
    document = failure_policy(made, 1)
    assert [rule["action"] for rule in document["rules"]] == [rule.action for rule in rules_of(made.spec)]
    selectors = ("reasons", "exitCodes", "signals", "pattern")
    assert [document["rules"][-1][name] for name in selectors] == [None] * len(selectors)
    assert document["restarts"] == {"user": 3, "infrastructure": 20}
    assert document["backoff"] == {"baseSeconds": 5, "maxSeconds": 300, "healthySeconds": 600}


def test_the_largest_policy_leaves_room_in_a_config_map() -> None:
    rule = {
        "exitCodes": list(range(1, 33)),
        "signals": list(range(1, 33)),
        "messagePattern": "x" * 256,
        "action": "Fail",
    }
    policy = failure_policy(job(failurePolicy={"rules": [rule] * 20}), 1)
    assert len(f"{policy}") < 256 * 1024
    assert FailurePolicy().rules == []
