"""What the agents are told of the job's failure policy: docs/agent-protocol.md."""

from collections.abc import Iterable
from typing import Final, TypeVar

from deepspeed_operator.api.failure_policy import MAX_BACKOFF_SECONDS
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.restarts import RepeatedFailure, Restarts
from deepspeed_operator.api.spec import Launcher
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.job.failure_rules import Budget, Rule, budgets_of, policy_of, rules_of

Each = TypeVar("Each", str, int)
HEALTHY_SECONDS: Final = 600  # ranks that have run for so long have recovered: the next restart does not wait


def failure_policy(job: DeepSpeedJob, attempt: int) -> Json:
    """Return by what the agents of this attempt start the ranks again in their pods, and how often.

    What is left of the budgets is in status; all of them for an attempt that is not recorded there.
    """
    policy, status = policy_of(job.spec), job.status
    left = {budget.value: limit for budget, limit in budgets_of(policy).items()}
    repeated = RepeatedFailure()
    if status.run is not None and status.attempt is not None and status.attempt.number == attempt:
        known = status.attempt.restarts_left or Restarts()
        left, repeated = known.model_dump(include=set(Budget)), status.run.repeated or repeated
    return {
        "restartInPlace": policy.restart_in_place,
        "replacementSeconds": replacement_seconds(job),
        "warmInterpreters": policy.warm_interpreters.value,
        "restarts": left,
        "repeated": {"key": repeated.key, "count": repeated.count},
        "backoff": {
            "baseSeconds": policy.backoff_seconds,
            "maxSeconds": MAX_BACKOFF_SECONDS,
            "healthySeconds": HEALTHY_SECONDS,
        },
        "rules": [_rule(each) for each in rules_of(job.spec)],
    }


def replacement_seconds(job: DeepSpeedJob) -> int:
    """Return how long pods of a gang wait for one in the place of a lost one; 0: the attempt ends without it."""
    policy = policy_of(job.spec)
    replaces = policy.restart_in_place and job.spec.training.started_by is Launcher.RANKS and job.spec.nodes > 1
    return policy.replacement_deadline_seconds if replaces else 0


def _rule(rule: Rule) -> Json:
    return {
        "reasons": _listed(rule.reasons),
        "exitCodes": _listed(rule.exit_codes),
        "signals": _listed(rule.signals),
        "pattern": rule.pattern,
        "action": rule.action.value,
        "unlessSaved": rule.unless_saved,
        "budget": rule.budget.value,
        "inPlace": rule.in_place,
    }


def _listed(values: Iterable[Each] | None) -> list[Each] | None:
    return None if values is None else sorted(values)
