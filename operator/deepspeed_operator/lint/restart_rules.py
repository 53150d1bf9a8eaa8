"""Rules of a failure policy that never apply, or that nothing may apply."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Final

from deepspeed_operator.api.failure_policy import FailureRule
from deepspeed_operator.api.finding import Code, error
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding
from deepspeed_operator.job.failure_rules import FAILURES, kinds_of_failures, policy_of
from deepspeed_operator.lint.patterns import unsafe

PATH: Final = "spec.failurePolicy.rules"
_SELECTORS: Final = ("exit_codes", "signals", "reasons", "categories")


def restart_rule_findings(spec: DeepSpeedJobSpec) -> list[Finding]:
    """Return errors for rules that match nothing, or everything before others, and for patterns that are not safe."""
    rules, kinds = policy_of(spec).rules, kinds_of_failures(policy_of(spec))
    found: list[Finding] = []
    for at, rule in enumerate(rules):
        wrong = [*_unknown_reasons(f"{PATH}[{at}]", rule), *_pattern(f"{PATH}[{at}]", rule)]
        found += wrong
        earlier = next((before for before in range(at) if _covers(rules[before], rule)), None)
        if earlier is not None:
            message = f"{PATH}[{earlier}] matches all that it does, and comes first: it never applies."
            found.append(error(f"{PATH}[{at}]", Code.IDLE_RULE, message, "Put it first, or remove one of the two."))
        elif not wrong and not any(kind.narrowed(rule) for kind in kinds):
            message = "no failure has one of these reasons, categories, exit codes and signals together."
            found.append(error(f"{PATH}[{at}]", Code.IDLE_RULE, message, _choices(rule)))
    return found


def _unknown_reasons(path: str, rule: FailureRule) -> Iterator[Finding]:
    for at, reason in enumerate(rule.reasons or ()):
        if reason not in FAILURES:
            near = get_close_matches(reason, FAILURES, n=1)
            fix = f"Write {near[0]}." if near else f"Write one of {', '.join(FAILURES)}."
            yield error(f"{path}.reasons[{at}]", Code.IDLE_RULE, f"no run fails for a reason {reason}.", fix)


def _pattern(path: str, rule: FailureRule) -> Iterator[Finding]:
    why = unsafe(rule.message_pattern) if rule.message_pattern is not None else None
    if why is not None:
        fix = "Write a part of the words as they are, with \\ before each of . * + ? ( ) [ ] { } | ^ $."
        yield error(f"{path}.messagePattern", Code.UNSAFE_PATTERN, f"cannot be searched for: {why}.", fix)


def _covers(first: FailureRule, then: FailureRule) -> bool:
    """Whether all that `then` matches is matched by `first`, as far as that can be told."""
    selectors = ((getattr(first, name), getattr(then, name)) for name in _SELECTORS)
    all_of_them = all(_within(mine, other) for mine, other in selectors)
    return all_of_them and first.message_pattern in {None, then.message_pattern}


def _within(wide: Sequence[object] | None, narrow: Sequence[object] | None) -> bool:
    return wide is None or (narrow is not None and set(narrow) <= set(wide))


def _choices(rule: FailureRule) -> str:
    if rule.reasons and rule.categories:
        known = ", ".join(f"{reason} ({FAILURES[reason]})" for reason in rule.reasons if reason in FAILURES)
        return f"Remove categories, or write those of the reasons: {known}."
    return "Only RankFailed and ContainerFailed have signals; remove what does not belong together."
