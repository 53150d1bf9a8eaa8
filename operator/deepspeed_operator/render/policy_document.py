"""What the agents are told of the job's failure policy: docs/agent-protocol.md."""

from collections.abc import Iterable
from typing import Final, TypeVar

from deepspeed_operator.api.failure_policy import MAX_BACKOFF_SECONDS
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.job.failure_rules import Rule, budgets_of, policy_of, rules_of

Each = TypeVar("Each", str, int)
HEALTHY_SECONDS: Final = 600  # ranks that have run for so long have recovered: the next restart does not wait


def failure_policy(job: DeepSpeedJob) -> Json:
    """Return by what the agents start the ranks again in their pods, and how often."""
    policy = policy_of(job.spec)
    return {
        "restartInPlace": policy.restart_in_place,
        "restarts": {budget.value: left for budget, left in budgets_of(policy).items()},
        "repeated": {"key": None, "count": 0},
        "backoff": {
            "baseSeconds": policy.backoff_seconds,
            "maxSeconds": MAX_BACKOFF_SECONDS,
            "healthySeconds": HEALTHY_SECONDS,
        },
        "rules": [_rule(each) for each in rules_of(job.spec)],
    }


def _rule(rule: Rule) -> Json:
    return {
        "reasons": _listed(rule.reasons),
        "exitCodes": _listed(rule.exit_codes),
        "signals": _listed(rule.signals),
        "pattern": rule.pattern,
        "action": rule.action.value,
        "budget": rule.budget.value,
        "inPlace": rule.in_place,
    }


def _listed(values: Iterable[Each] | None) -> list[Each] | None:
    return None if values is None else sorted(values)
