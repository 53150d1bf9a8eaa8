"""Ranks that were told to end and had too little time for it: said once for each attempt, when its pods have ended."""

from collections.abc import Iterator
from dataclasses import replace

from deepspeed_operator.api.attempt_status import EndedAttempt
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.reconcile.actions import JobEvent, Outcome
from deepspeed_operator.reconcile.observe.messages import agent_message
from deepspeed_operator.reconcile.observe.observed import Observed


def report_grace(observed: Observed, outcome: Outcome) -> Outcome:
    """Return the outcome with what the pods of ended attempts tell of their grace, where that is not known yet."""
    killed = {attempt.number: found for attempt in outcome.status.attempts if (found := [*_killed(observed, attempt)])}
    if not killed:
        return outcome
    attempts = [
        each.model_copy(update={"killed_after_seconds": killed[each.number][0][1]}) if each.number in killed else each
        for each in outcome.status.attempts
    ]
    step = outcome.status.plan.measured_step_seconds if outcome.status.plan is not None else None
    events = [_event(number, pods, step) for number, pods in killed.items()]
    status = outcome.status.model_copy(update={"attempts": attempts})
    return replace(outcome, status=status, events=(*outcome.events, *events))


def _killed(observed: Observed, attempt: EndedAttempt) -> Iterator[tuple[str, int]]:
    """Yield pods whose ranks were killed, and after how many seconds, unless the attempt says so already."""
    if attempt.killed_after_seconds is not None:
        return
    for pod in observed.pods:
        ours = (pod.job_uid, pod.attempt) == (observed.job.metadata.uid, attempt.number)
        message = pod.termination.message if ours and pod.termination is not None else ""
        said = agent_message(message) if "killedAfterSeconds" in message else None  # few are worth the reading
        if said is not None and said.killed_after_seconds is not None:
            yield pod.name, said.killed_after_seconds


def _event(attempt: int, pods: list[tuple[str, int]], step_seconds: float | None) -> JobEvent:
    (first, seconds), others = pods[0], len(pods) - 1
    who = f"pod {first}" + (f" and {others} more" if others else "")
    step = f" A step takes {step_seconds:.1f} s." if step_seconds is not None else ""
    words = (
        f"Attempt {attempt}: ranks in {who} were ended by SIGKILL after {seconds} s of grace, and what they had not "
        f"saved is lost.{step} Raise terminationGracePeriodSeconds in spec.template.spec, of which they have all but "
        "5 s."
    )
    return JobEvent("Warning", Reason.GRACE_EXCEEDED, words)
