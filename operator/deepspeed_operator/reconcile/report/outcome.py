"""From a draft to the status that says what follows from it, and the event that announces it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.reason_catalogue import CATALOGUE
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import ConditionType, DeepSpeedJobStatus, Finding, Level, State
from deepspeed_operator.reconcile.actions import Action, JobEvent, Outcome
from deepspeed_operator.reconcile.observe.observed import Observed, SetAside
from deepspeed_operator.reconcile.observe.pods import timestamp
from deepspeed_operator.reconcile.report.conditions import Statement, condition, conditions, last_told, with_refusal
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.restart_counts import total
from deepspeed_operator.reconcile.report.shown_progress import at_rest
from deepspeed_operator.reconcile.report.spec_changes import report_changes, unrun_changes
from deepspeed_operator.reconcile.report.verdict import Verdict, accepted, verdict_on
from deepspeed_operator.reconcile.report.wall_time import goodput

# Counters and progress alone are no news: they are written at most this often.
COUNTERS_EVERY: Final = timedelta(seconds=60)
_BAD_NEWS: Final = frozenset({State.INVALID, State.FAILED})


def report(
    observed: Observed,
    draft: StatusDraft | None = None,
    *,
    verdict: Verdict | None = None,
    actions: Sequence[Action] = (),
    check_at: datetime | None = None,
    acceptance: Verdict | None = None,
    memory: Statement | None = None,
) -> Outcome:
    """Return the outcome that writes the draft, and says what follows from its run and attempt.

    `draft`: None leaves the status as it is. `verdict` and `acceptance` are what is to be said where no run was
    accepted yet. `memory` is what judging the run has come to, None where it was not judged just now. While spec asks
    for another run than the accepted one, what is said of spec stays, and its generation.
    """
    job, before = observed.job, observed.job.status
    draft = draft or StatusDraft.of(before)
    run = draft.run
    of_spec = run is None or run.id == job.spec.run_id
    generation = (None if of_spec else before.observed_generation) or job.metadata.generation
    report_changes(observed, draft)
    findings = draft.findings.kept
    warnings = warnings_among(findings)
    if run is not None and draft.attempt is not None:
        if draft.progress is not None:
            draft.progress = at_rest(draft.progress, draft.attempt.phase, failed=draft.failure is not None)
        verdict = verdict_on(job, run, draft.attempt, draft.failure)
        acceptance = accepted(run.world, run.batch, has_config=run.config_digest is not None, warnings=warnings)
    assert verdict is not None, "there is a run, or a verdict why there is none"
    after = draft.written_over(before).model_copy(
        update={
            "observed_generation": generation,
            "state": verdict.state,
            "warnings": warnings or None,
            "restarts": total(run, draft.attempt) if run is not None else None,
            "conditions": conditions(
                verdict,
                acceptance,
                before,
                generation=generation,
                now=timestamp(observed.now),
                memory=memory,
                unrun=unrun_changes(findings),
                of_spec=of_spec,
            ),
        }
    )
    if after != before and observed.facts.oldest_config_map is not None:
        after = after.model_copy(update={"oldest_config_map": observed.facts.oldest_config_map})
    volatile = {"workers": draft.counted, "progress": draft.moved, "checkpoint": draft.saved}
    changed = {name: value for name, value in volatile.items() if value not in (None, getattr(before, name))}
    if changed:
        written = observed.facts.status_written_at
        due = None if written is None else written + COUNTERS_EVERY
        first = draft.moved is not None and before.progress is None  # that it trains is news
        if after != before or due is None or due <= observed.now or first:
            after = after.model_copy(update=changed)
        else:
            check_at = min(check_at, due) if check_at is not None else due
    if after != before:
        after = after.model_copy(update={"goodput": goodput(before, draft, observed.now)})
    announced = (*draft.events, *_announcement(before, after, verdict))
    return Outcome(after, tuple(actions), announced, check_at)


def warnings_among(findings: Iterable[Finding]) -> int:
    return sum(finding.level is Level.WARNING for finding in findings)


def set_aside(observed: Observed, aside: SetAside) -> Outcome:
    """Return the outcome that says why a job is left alone, without a look at its spec, which may be why."""
    job, before = observed.job, observed.job.status
    if before.attempt is not None and before.attempt.phase is Phase.ENDED:
        return keep_status(observed, check_at=aside.until)
    words = (
        f"The job is set aside: {aside.why}. It is looked at again at {timestamp(aside.until)}; pods that run go on. "
        "If this comes again, make spec.dsConfig and spec.template smaller, and report it with the operator's log."
    )
    verdict = Verdict(before.state or State.INVALID, Reason.QUARANTINED, words)
    generation, now = before.observed_generation or job.metadata.generation, timestamp(observed.now)
    told = conditions(verdict, None, before, generation=generation, now=now, of_spec=not observed.asks_for_another_run)
    seen = {"observed_generation": generation, "state": verdict.state, "conditions": told}
    after = before.model_copy(update=seen)
    return Outcome(after, (), _announcement(before, after, verdict), aside.until)


def beside_refusal(observed: Observed, accepted_run: Outcome, refusal: Verdict, retry_at: datetime | None) -> Outcome:
    """Return what goes on of the accepted run, with the words that the run which spec asks for is refused.

    `retry_at`: when that one is to be judged again; None if only a change of spec makes a difference.
    """
    job, before, now = observed.job, observed.job.status, timestamp(observed.now)
    generation, run_id = job.metadata.generation, job.spec.run_id
    said = with_refusal(accepted_run.status, refusal, before, run_id=run_id, generation=generation, now=now)
    after = accepted_run.status.model_copy(update={"observed_generation": generation, "conditions": said})
    was, is_now = condition(before, ConditionType.ACCEPTED), condition(after, ConditionType.ACCEPTED)
    assert is_now is not None, "a recorded run was accepted"
    same = was is not None and (was.status, was.message) == (is_now.status, is_now.message)
    events = () if same else (JobEvent("Warning", is_now.reason, is_now.message),)
    return replace(accepted_run, status=after, events=(*accepted_run.events, *events)).no_later_than(retry_at)


def keep_status(observed: Observed, *actions: Action, check_at: datetime | None = None) -> Outcome:
    """Return an outcome that says nothing new."""
    return Outcome(observed.job.status, actions, (), check_at)


def _announcement(before: DeepSpeedJobStatus, after: DeepSpeedJobStatus, verdict: Verdict) -> tuple[JobEvent, ...]:
    """Announce a change of state or reason; of a refused job also other words, since they list the errors."""
    was, now = last_told(before), last_told(after)
    assert now is not None, "a report sets every condition"
    same_attempt = before.attempt_number == after.attempt_number
    same = same_attempt and was is not None and (was.state, was.reason) == (now.state, now.reason)
    if same and (was == now or verdict.state is not State.INVALID):
        return ()
    entry = CATALOGUE.get(verdict.reason)
    bad = verdict.state in _BAD_NEWS or entry is None or entry.category is not None
    return (JobEvent("Warning" if bad else "Normal", verdict.reason, verdict.message),)
