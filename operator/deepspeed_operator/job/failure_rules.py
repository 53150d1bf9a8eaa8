"""What follows a failure: the defaults as a table, and the job's own rules before them.

The agents restart their ranks by these rules, and the operator begins attempts by them: both take the first that
matches, and the last matches everything.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self, TypeVar

from deepspeed_operator.api.failure_policy import DEFAULT_RESTARTS, FailurePolicy, FailureRule, RuleAction
from deepspeed_operator.api.reason_catalogue import BY_CONDITION
from deepspeed_operator.api.reasons import Category, Reason
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import ConditionType

Each = TypeVar("Each")
PATTERN_REACH: Final = 300  # characters of the words that a pattern is searched for in


class Budget(StrEnum):
    """Which number of restarts a failure counts against."""

    USER = "user"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True, slots=True)
class FailureCause:
    """What the rules look at.

    `signature`: the words of whoever failed first. `held_up_by`: the reason, of the user's, for which ranks did not
    start in time, by which the defaults judge instead; None where it is another or none.
    """

    reason: str
    exit_code: int | None = None
    signal: int | None = None
    signature: str = ""
    held_up_by: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """What to do after a cause that everything given matches; None matches any.

    `in_place`: whether the pods may be kept. `category`: that of all causes that match; None where it is not known.
    `unless_saved`: a run that ends by this rule starts again where its last round has completed a checkpoint.
    """

    action: RuleAction
    budget: Budget
    in_place: bool
    category: Category | None = None
    reasons: frozenset[str] | None = None
    exit_codes: frozenset[int] | None = None
    signals: frozenset[int] | None = None
    pattern: str | None = None
    unless_saved: bool = False

    def matches(self, cause: FailureCause) -> bool:
        words = cause.signature[:PATTERN_REACH]
        return (
            (self.reasons is None or cause.reason in self.reasons)
            and (self.exit_codes is None or cause.exit_code in self.exit_codes)
            and (self.signals is None or cause.signal in self.signals)
            and (self.pattern is None or re.search(self.pattern, words) is not None)
        )

    def action_after(self, saved: bool) -> RuleAction:
        """Return what to do after a round that has completed a checkpoint, or has not."""
        return RuleAction.RESTART if saved and self.unless_saved else self.action

    def narrowed(self, rule: FailureRule) -> Self | None:
        """Return this rule for what `rule` matches as well, with its action; None if no cause matches both."""
        if rule.categories is not None and self.category not in rule.categories:
            return None
        reasons = _common(self.reasons, rule.reasons)
        codes, signals = _common(self.exit_codes, rule.exit_codes), _common(self.signals, rule.signals)
        if frozenset() in {reasons, codes, signals}:
            return None
        return replace(
            self,
            action=rule.action,
            unless_saved=False,
            reasons=reasons,
            exit_codes=codes,
            signals=signals,
            pattern=rule.message_pattern,
        )


def _common(one: frozenset[Each] | None, other: list[Each] | None) -> frozenset[Each] | None:
    if one is None or other is None:
        return one if other is None else frozenset(other)
    return one & frozenset(other)


FAILURES: Final[dict[str, Category | None]] = {
    reason: entry.category for reason, entry in BY_CONDITION[ConditionType.FAILED].items()
}
# A rank or a container ends by what its program does, unless a signal ends it that nobody explains.
_PROGRAM: Final = frozenset[str]({Reason.RANK_FAILED, Reason.CONTAINER_FAILED})
_SIGNALS: Final = frozenset(range(1, 32))
_SIGNALLED: Final = frozenset(range(129, 160))  # what a shell returns for a signal
_EXITED: Final = frozenset(range(1, 256)) - _SIGNALLED
# Whatever the budgets are, and whatever was saved: the next attempt would find the same, begin at step 0 again what was
# done, or go on from a checkpoint in which steps are mixed.
_ENDS_THE_RUN: Final = frozenset[str](
    {
        *(Reason.WORLD_MISMATCH, Reason.TRANSPORT_MISMATCH, Reason.PREFLIGHT_FAILED, Reason.DEADLINE_EXCEEDED),
        *(Reason.FINISHED_THEN_FAILED, Reason.RESUME_MISMATCH),
    }
)
# Their pods cannot go on: they have ended, lack something, or their node is at fault.
_NOT_IN_PLACE: Final = frozenset[str](
    {
        *(Reason.TERMINATED, Reason.PEER_LOST, Reason.PEERS_MISSING, Reason.HOST_NOT_RESOLVED),
        *(Reason.POD_CHECK_FAILED, Reason.AGENT_ERROR, Reason.STALE_LAUNCH_DOCUMENT, Reason.WORLD_MISMATCH),
        *(Reason.TRANSPORT_MISMATCH, Reason.PREFLIGHT_FAILED, Reason.SCRIPT_NOT_FOUND, Reason.PYTHON_NOT_FOUND),
        *(Reason.DEVICE_FAULT, Reason.HOST_OUT_OF_MEMORY, Reason.SHARED_MEMORY, Reason.CONTAINER_KILLED),
        *(Reason.INIT_CONTAINER_FAILED, Reason.EVICTED, Reason.PREEMPTED, Reason.DRAINED),
        *(Reason.NODE_LOST, Reason.POD_DELETED, Reason.POD_FAILED, Reason.STARTUP_DEADLINE_EXCEEDED),
    }
)


def rules_of(spec: DeepSpeedJobSpec) -> list[Rule]:
    """Return the job's rules in order, and after them the defaults, of which the last matches everything.

    Each of the job's counts against the budget that the default would, and keeps the pods where it would.
    """
    policy = policy_of(spec)
    return [*_own_rules(policy), *default_rules(policy)]


def rule_for(cause: FailureCause, policy: FailurePolicy) -> Rule:
    """Return the rule that decides about a cause, its category with it, as far as that is known."""
    own = next((rule for rule in _own_rules(policy) if rule.matches(cause)), None)
    if own is not None:
        return own
    by_default = cause if cause.held_up_by is None else replace(cause, reason=cause.held_up_by)
    return next(rule for rule in kinds_of_failures(policy) if rule.matches(by_default))


def _own_rules(policy: FailurePolicy) -> list[Rule]:
    own = (each.narrowed(rule) for rule in policy.rules for each in kinds_of_failures(policy))
    return [rule for rule in own if rule is not None]


def policy_of(spec: DeepSpeedJobSpec) -> FailurePolicy:
    return spec.failure_policy or FailurePolicy()


def points_at_node(reason: str) -> bool:
    """Whether a failure for this reason is the fault of the node of its pod: signals and disruptions tell nothing."""
    return FAILURES.get(reason) is Category.INFRASTRUCTURE


def budgets_of(policy: FailurePolicy) -> dict[Budget, int]:
    """Return how many restarts a run may have, of the infrastructure in 24 hours."""
    user = DEFAULT_RESTARTS if policy.max_restarts is None else policy.max_restarts
    return {Budget.USER: user, Budget.INFRASTRUCTURE: policy.max_infrastructure_restarts}


def default_rules(policy: FailurePolicy) -> list[Rule]:
    """Return what follows each failure where the job has no rule of its own for it."""
    of_user = _after_user_error(policy)
    return [*_signals(), *_by_reason(of_user), of_user]


def kinds_of_failures(policy: FailurePolicy) -> list[Rule]:
    """Return the defaults in finer parts: those with a category match all failures of that category, and no others."""
    of_user = _after_user_error(policy)
    exits = replace(of_user, category=Category.USER, reasons=_PROGRAM, exit_codes=_EXITED)
    return [*_signals(), *_by_reason(of_user), exits, of_user]


def _after_user_error(policy: FailurePolicy) -> Rule:
    """What repeats by itself costs GPUs for nothing, unless who wrote the job knows better, or it got on meanwhile."""
    if policy.max_restarts is None:
        return Rule(RuleAction.FAIL, Budget.USER, in_place=True, unless_saved=True)
    return Rule(RuleAction.RESTART, Budget.USER, in_place=True)


def _signals() -> Iterator[Rule]:
    """Yield the rules of a program that a signal ended, told as such or by a shell's exit code."""
    ended = Rule(RuleAction.RESTART, Budget.INFRASTRUCTURE, True, Category.INFRASTRUCTURE, _PROGRAM)
    yield replace(ended, signals=_SIGNALS)
    yield replace(ended, exit_codes=_SIGNALLED)


def _by_reason(of_user: Rule) -> Iterator[Rule]:
    of_others = Rule(RuleAction.RESTART, Budget.INFRASTRUCTURE, in_place=True)
    for category in Category:
        rule = of_user if category is Category.USER else of_others
        reasons = frozenset(reason for reason, known in FAILURES.items() if known is category) - _PROGRAM
        for in_place in (True, False):
            those = reasons & _NOT_IN_PLACE if not in_place else reasons - _NOT_IN_PLACE
            ends = replace(rule, action=RuleAction.FAIL, unless_saved=False)
            for what, then in ((_ENDS_THE_RUN, ends), (reasons - _ENDS_THE_RUN, rule)):
                if those & what:
                    yield replace(then, in_place=in_place, category=category, reasons=those & what)
