"""Whether ranks that failed start again in their pods: the rules, the budgets, the breaker, the pause before.

Nothing here keeps time or state. The operator judges an attempt's end by the same rules; tests/unit/restart_cases.json
holds what both must answer.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Mapping, NamedTuple

from dso_launch import Cause

UNCOUNTED = "uncounted"
# The pod's own failures and the gang's, which ranks in the same pods would meet again.
OF_THE_PODS = frozenset(
    (
        "AgentError",
        "ConversionFailed",
        "HostNotResolved",
        "PeerLost",
        "PeersMissing",
        "PodCheckFailed",
        "PreflightFailed",
        "PythonNotFound",
        "ScriptNotFound",
        "StaleLaunchDocument",
        "Terminated",
        "TransportMismatch",
        "WorldMismatch",
    )
)
# With these a pod is lost: the others may go on with another one in its place.
LOSSES = frozenset(("AgentError", "PeerLost", "Terminated"))
# As many failures of one signature, without an optimizer step between them, show that to start again does not help.
MOST_ALIKE, MOST_ALIKE_OF_USERS = 3, 2
JITTER = 0.2
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b|\d+")


def key_of(cause: Cause) -> str:
    """The same for failures that differ in numbers alone: addresses, process ids, steps, paths of a run."""
    text = f"{cause['reason']}\n{_NUMBER.sub('#', cause['signature'])}"
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


class Rule:
    """What is to be done after a failure; each condition that it has must hold."""

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self.reasons: list[str] | None = rule["reasons"]
        self.exit_codes: list[int] | None = rule["exitCodes"]
        self.signals: list[int] | None = rule["signals"]
        self.pattern: str | None = rule["pattern"]
        self.action: str = rule["action"]
        self.unless_saved: bool = rule["unlessSaved"]  # then a round that has completed a checkpoint starts again
        self.budget: str = rule["budget"]
        self.in_place: bool = rule["inPlace"]

    def matches(self, cause: Cause) -> bool:
        return (
            (self.reasons is None or cause["reason"] in self.reasons)
            and (self.exit_codes is None or cause["exitCode"] in self.exit_codes)
            and (self.signals is None or cause["signal"] in self.signals)
            and (self.pattern is None or found(self.pattern, cause["signature"]))
        )


def found(pattern: str, text: str) -> bool:
    try:
        return bool(re.search(pattern, text))
    except re.error:
        return False  # the operator's Python is newer, and knows more


class FailurePolicy:
    """`failurePolicy` of the launch document."""

    def __init__(self, policy: Mapping[str, Any]) -> None:
        self.in_place: bool = policy["restartInPlace"]
        self.restarts: dict[str, int] = policy["restarts"]
        self.repeated: dict[str, Any] = policy["repeated"]
        backoff = policy["backoff"]
        self.base: float = backoff["baseSeconds"]
        self.longest: float = backoff["maxSeconds"]
        self.healthy: float = backoff["healthySeconds"]
        self.rules = [Rule(rule) for rule in policy["rules"]]

    def rule(self, cause: Cause) -> Rule:
        return next(rule for rule in self.rules if rule.matches(cause))

    def pause(self, unhealthy: int, jitter: float) -> float:
        """Seconds before the restart after so many unhealthy rounds in a row; `jitter` is between -1 and 1."""
        if unhealthy < 2:
            return 0.0
        return min(self.longest, self.base * 2.0 ** min(unhealthy - 2, 30)) * (1 + JITTER * jitter)


class Record(NamedTuple):
    """The restarts in place of an attempt so far."""

    counts: Mapping[str, int]  # by budget, and those that do not count
    key: str | None  # of the latest failure
    alike: int  # failures of this key in a row, without a step between them
    unhealthy: int = 0  # rounds in a row that ended soon
    nodes: frozenset[str] = frozenset()  # whose failures were the infrastructure's


def first_record(policy: FailurePolicy) -> Record:
    counts = {"user": 0, "infrastructure": 0, UNCOUNTED: 0}
    return Record(counts, policy.repeated["key"], policy.repeated["count"])


class Verdict(NamedTuple):
    """Whether the ranks start again in their pods."""

    words: str  # which restart it is, or why there is none; empty where none was to be expected
    record: Record | None = None  # with this restart; None: the attempt ends
    replaces: bool = False  # whether the pod of the cause goes, and another one takes its place


def judge(
    policy: FailurePolicy,
    record: Record,
    cause: Cause,
    stepped: bool | None,
    seconds: float,
    *,
    replaceable: bool = False,
    saved: bool = False,
) -> Verdict:
    """Judge the end of a round that ran for so many seconds.

    `stepped` is None where nobody could see a step. `replaceable`: another pod may take the place of the cause's.
    `saved`: a checkpoint was completed in the round.
    """
    reason = cause["reason"]
    lost = replaceable and reason in LOSSES
    if (reason in OF_THE_PODS and not lost) or not policy.in_place:
        return Verdict("")
    rule = policy.rule(cause)
    action = "Restart" if saved and rule.unless_saved else rule.action
    if action == "Fail":
        return Verdict("a rule of the failure policy ends the run")
    if not (rule.in_place or replaceable):
        return Verdict(f"after {reason} the pod is not used again")
    healthy = seconds >= policy.healthy
    progress = saved or (healthy if stepped is None else stepped)
    # Who ends pods on purpose does it as often as there is reason to, and at whatever node.
    disrupted = reason == "Terminated"
    key = record.key if disrupted else key_of(cause)
    alike = record.alike if disrupted else 1 if progress or key != record.key else record.alike + 1
    most = MOST_ALIKE_OF_USERS if rule.budget == "user" and not progress else MOST_ALIKE
    if alike >= most and not disrupted:
        return Verdict(f"the same failure {alike} times in a row, without a step between them")
    node = "" if disrupted or rule.budget != "infrastructure" else cause["node"]
    again = bool(node) and node in record.nodes
    if again and not replaceable:
        return Verdict(f"the second failure on node {node}")
    counted = action == "Restart"
    used, limit = record.counts[rule.budget], policy.restarts[rule.budget]
    if counted and used >= limit:
        return Verdict(f"no restart is left of {limit} ({rule.budget})")
    budget = rule.budget if counted else UNCOUNTED
    counts = {**record.counts, budget: record.counts[budget] + 1}
    nodes = record.nodes | {node} if node else record.nodes
    words = f"restart {used + 1} of {limit} ({rule.budget})" if counted else "a restart that does not count"
    after = Record(counts, key, alike, 0 if healthy else record.unhealthy + 1, nodes)
    return Verdict(words, after, lost or again or not rule.in_place)
