"""Rules of a failure policy that are refused, with their path and what to write instead."""

import re

import pytest

from deepspeed_operator.lint.patterns import unsafe
from deepspeed_operator.lint.restart_rules import restart_rule_findings
from tests.unit.reconcile.simulation import job

RULES = "spec.failurePolicy.rules"


def findings(*rules: dict[str, object]) -> dict[str, str]:
    spec = job(failurePolicy={"rules": [{"action": "Fail", **rule} for rule in rules]}).spec
    return {each.path: f"{each.message} {each.fix}" for each in restart_rule_findings(spec)}


def test_rules_that_each_decide_something_are_accepted() -> None:
    assert not findings(
        {"exitCodes": [1], "messagePattern": "shard"},
        {"exitCodes": [1]},
        {"reasons": ["NodeLost"], "categories": ["Infrastructure", "Disruption"]},
        {"reasons": ["RankFailed"], "categories": ["Infrastructure"], "signals": [9]},
        {},
    )


@pytest.mark.parametrize(
    ("rules", "path", "words"),
    [
        (({"action": "Fail"}, {"exitCodes": [1]}), f"{RULES}[1]", "comes first"),
        (({"exitCodes": [1, 2]}, {"exitCodes": [2], "signals": [9]}), f"{RULES}[1]", f"{RULES}[0]"),
        (({"reasons": ["NodeLst"]},), f"{RULES}[0].reasons[0]", "Write NodeLost."),
        (({"reasons": ["Running"]},), f"{RULES}[0].reasons[0]", "Write"),
        (({"reasons": ["NodeLost"], "categories": ["User"]},), f"{RULES}[0]", "NodeLost (Infrastructure)"),
        (({"reasons": ["NodeLost", "Running"]},), f"{RULES}[0].reasons[1]", "no run fails"),
        (({"messagePattern": "(a+)+"},), f"{RULES}[0].messagePattern", "repeats a group"),
    ],
)
def test_a_rule_that_never_applies_is_refused(rules: tuple[dict[str, object], ...], path: str, words: str) -> None:
    found = findings(*rules)
    assert list(found) == [path]
    assert words in found[path]


SAFE = [
    "CUDA error: (uncorrectable ECC|unspecified launch failure)",
    r"^NCCL.*timeout after \d+ ms$",
    "(?i)out of memory",
    r"[]a-z*+]{2,8} \(x\)\?",
    "(?:no such )?shard",
    "a*?b",
    "|".join(f"word{number}" for number in range(25)),
]
UNSAFE = [
    "(", "[", "*", "a**", "a*+", r"(a)\1", "(?=a)", "(?<!a)b", "(?P<n>a)", "(?s).", "(?(1)a)", "a*b*c*",
    "(a|a)*", "((a)|b)+", "(a?){9}", "(?:a{2})*", "a?" * 11 + "a" * 11, "(a|a)" * 20, "a{1,40}b{1,40}", "a{3000}",
    "a{,}b*c*", "a" + "{2}" * 2,
]  # fmt: skip


@pytest.mark.parametrize("pattern", SAFE)
def test_a_pattern_that_is_soon_searched_for_is_accepted(pattern: str) -> None:
    assert unsafe(pattern) is None
    for text in ("a" * 300, "NCCL timeout after " * 16, "word1" * 60):
        re.search(pattern, text)  # what is exponential does not come back


@pytest.mark.parametrize("pattern", UNSAFE)
def test_a_pattern_that_may_take_for_ever_or_is_none_is_refused(pattern: str) -> None:
    assert unsafe(pattern)
