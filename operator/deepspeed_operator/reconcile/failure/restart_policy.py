"""What follows the end of an attempt. One policy decides it; beside it only an exceeded deadline ends a run."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from deepspeed_operator.api.failure_policy import MAX_BACKOFF_SECONDS, FailurePolicy, RuleAction
from deepspeed_operator.api.reasons import Category
from deepspeed_operator.api.restarts import RepeatedFailure
from deepspeed_operator.api.status import Failure
from deepspeed_operator.job.failure_rules import Budget, FailureCause, Rule, budgets_of, rule_for
from deepspeed_operator.reconcile.failure.attempt_end import AttemptEnd, Succeeded
from deepspeed_operator.reconcile.failure.first_failure import saying_more

# So many failures of one kind in a row, without an optimizer step between them, show that another start does not help.
MOST_ALIKE: Final = 3
MOST_ALIKE_OF_USERS: Final = 2
_JITTER: Final = 0.2
_NUMBER: Final = re.compile(r"0[xX][0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b|\d+")
_LIMITS: Final = {
    Budget.USER: "spec.failurePolicy.maxRestarts",
    Budget.INFRASTRUCTURE: "spec.failurePolicy.maxInfrastructureRestarts in 24 h",
}


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a run has been through until an attempt of it ends.

    `used`: of each budget. `repeated`: the failure before the one that ended the attempt, as far as it counts.
    `progressed`: whether the ranks got anywhere since that one. `saved`: whether they have completed a checkpoint since
    they began the last time, which is progress, too. `in_a_row`: attempts that failed soon after their
    ranks began, the one that ends included. `seed` is any text, from which jitter comes.
    """

    used: dict[Budget, int]
    repeated: RepeatedFailure
    progressed: bool
    in_a_row: int
    seed: str
    saved: bool = False


@dataclass(frozen=True, slots=True)
class Complete:
    """The run is complete, since `at` by the clock of a node; None if no node says when."""

    at: datetime | None


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """Another attempt follows.

    `budget` is what it counts against, None for none; `repeated` the failure for the next decision; `words` say which
    restart it is.
    """

    failure: Failure
    not_before: datetime
    budget: Budget | None
    repeated: RepeatedFailure
    words: str


@dataclass(frozen=True, slots=True)
class FailRun:
    """The run has failed by this cause."""

    failure: Failure


Decision = Complete | NewAttempt | FailRun


def decide(end: AttemptEnd, policy: FailurePolicy, record: RunRecord, now: datetime) -> Decision:
    """Return what follows the end of an attempt."""
    if isinstance(end, Succeeded):
        return Complete(end.at)
    rule = rule_for(end.cause, policy)
    action = rule.action_after(record.saved)
    if action is RuleAction.FAIL:
        return FailRun(end.failure)
    # Who ends pods on purpose does it as often as there is reason to.
    disrupted = rule.category is Category.DISRUPTION
    before = RepeatedFailure() if record.progressed or record.saved else record.repeated
    repeated = before if disrupted else _repeated(end.cause, before)
    if not disrupted and repeated.count >= _most_alike(rule, record):
        again = f"; it is failure {repeated.count} of this kind in a row, without a step in between, so that another"
        return FailRun(saying_more(end.failure, f"{again} start would not help"))
    if action is RuleAction.RESTART_WITHOUT_COUNTING:
        budget, words = None, "by a rule, this restart does not count"
    else:
        budget, limit = rule.budget, budgets_of(policy)[rule.budget]
        if record.used[budget] >= limit:
            spent = f"; no restart is left of {limit} ({_LIMITS[budget]})" if limit else ""
            return FailRun(saying_more(end.failure, spent))
        words = f"{budget} restart {record.used[budget] + 1} of {limit}"
    return NewAttempt(end.failure, now + _pause(policy, record), budget, repeated, words)


def key_of(cause: FailureCause) -> str:
    """Return what failures have in common that differ in numbers alone; the agents compute the same."""
    text = f"{cause.reason}\n{_NUMBER.sub('#', cause.signature)}"
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _repeated(cause: FailureCause, before: RepeatedFailure) -> RepeatedFailure:
    key = key_of(cause)
    return RepeatedFailure(key=key, count=before.count + 1 if key == before.key else 1)


def _most_alike(rule: Rule, record: RunRecord) -> int:
    return MOST_ALIKE_OF_USERS if rule.budget is Budget.USER and not (record.progressed or record.saved) else MOST_ALIKE


def _pause(policy: FailurePolicy, record: RunRecord) -> timedelta:
    """Return how long to wait: twice as long each time, and not all jobs of a node alike."""
    seconds = min(MAX_BACKOFF_SECONDS, policy.backoff_seconds * 2 ** max(0, record.in_a_row - 1))
    share = int(sha256(record.seed.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
    return timedelta(seconds=round(seconds * (1 + _JITTER * (2 * share - 1))))
