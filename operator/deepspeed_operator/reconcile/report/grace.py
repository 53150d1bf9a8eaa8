"""Ranks that were told to end: whether they saved, and had time enough; said once for each attempt, at its end."""

from collections.abc import Iterator
from dataclasses import replace

from deepspeed_operator.api.attempt_status import EndedAttempt
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.reconcile.actions import JobEvent, Outcome
from deepspeed_operator.reconcile.observe.messages import AgentMessage, agent_message
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import PodView


def report_grace(observed: Observed, outcome: Outcome) -> Outcome:
    """Return the outcome with what the pods of ended attempts tell of their grace, where that is not known yet."""
    killed = {attempt.number: found for attempt in outcome.status.attempts if (found := [*_killed(observed, attempt)])}
    saved = {attempt.number: words for attempt in outcome.status.attempts for words in _saved(observed, attempt)}
    if not killed and not saved:
        return outcome
    news: dict[int, dict[str, object]] = {number: {"saved_at_end": words} for number, words in saved.items()}
    for number, found in killed.items():
        news.setdefault(number, {})["killed_after_seconds"] = found[0][1]
    attempts = [each.model_copy(update=news.get(each.number, {})) for each in outcome.status.attempts]
    step = outcome.status.plan.measured_step_seconds if outcome.status.plan is not None else None
    events = [_event(number, pods, step) for number, pods in killed.items()]
    status = outcome.status.model_copy(update={"attempts": attempts})
    return replace(outcome, status=status, events=(*outcome.events, *events))


def _killed(observed: Observed, attempt: EndedAttempt) -> Iterator[tuple[str, int]]:
    """Yield pods whose ranks were killed, and after how many seconds, unless the attempt says so already."""
    if attempt.killed_after_seconds is not None:
        return
    for pod, said in _messages(observed, attempt, "killedAfterSeconds"):
        if said.killed_after_seconds is not None:
            yield pod.name, said.killed_after_seconds


def _saved(observed: Observed, attempt: EndedAttempt) -> Iterator[str]:
    """Yield whether its ranks saved once they were told to end, unless the attempt says so already."""
    if attempt.saved_at_end is None:
        yield from (said.saved_at_end for _, said in _messages(observed, attempt, "savedAtEnd") if said.saved_at_end)


def _messages(observed: Observed, attempt: EndedAttempt, key: str) -> Iterator[tuple[PodView, AgentMessage]]:
    """Yield the attempt's pods whose messages have the key: few are worth the reading."""
    for pod in observed.pods:
        ours = (pod.job_uid, pod.attempt) == (observed.job.metadata.uid, attempt.number)
        message = pod.termination.message if ours and pod.termination is not None else ""
        said = agent_message(message) if key in message else None
        if said is not None:
            yield pod, said


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
