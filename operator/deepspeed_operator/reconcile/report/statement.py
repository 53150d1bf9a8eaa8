"""From a verdict to the status that says it, and the event that announces it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from deepspeed_operator.api.reason_catalogue import CATALOGUE
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import (
    Batch,
    ConditionType,
    DeepSpeedJobStatus,
    Finding,
    Level,
    State,
    World,
)
from deepspeed_operator.reconcile.actions import Action, JobEvent, Outcome
from deepspeed_operator.reconcile.observe.observed import Observed, SetAside
from deepspeed_operator.reconcile.report.conditions import (
    Statement,
    Verdict,
    asks_for_another_run,
    condition,
    conditions,
    said_of_the_run,
    with_refusal,
)
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.spec_changes import report_changes, unrun_changes

# Counters alone are no news: they are written at most this often.
COUNTERS_EVERY: Final = timedelta(seconds=60)
_BAD_NEWS: Final = frozenset({State.INVALID, State.FAILED})


def state(
    observed: Observed,
    verdict: Verdict,
    draft: StatusDraft | None = None,
    *,
    actions: Sequence[Action] = (),
    check_at: datetime | None = None,
    acceptance: Verdict | None = None,
    memory: Statement | None = None,
) -> Outcome:
    """Return the outcome that says the verdict, and what the draft says besides.

    `draft`: None says nothing besides. `acceptance` and `memory` are what judging the run has come to, None where it
    was not judged just now. While spec asks for another run than the verdict is about, what is said of spec stays, and
    its generation.
    """
    job, before = observed.job, observed.job.status
    draft = draft or StatusDraft.of(before)
    of_spec = not asks_for_another_run(job) or draft.run_id == job.spec.run_id
    generation = (None if of_spec else before.observed_generation) or job.metadata.generation
    said = condition(before, ConditionType.ACCEPTED)
    of_another_run = said is None or said.status != "True" or said.reason == Reason.PODS_REFUSED  # refused, or waiting
    unsaid = of_spec and acceptance is None and of_another_run
    if unsaid and before.world is not None:
        has_config = before.config_digest is not None
        acceptance = accepted(before.world, before.batch, has_config=has_config, warnings=before.warnings or 0)
    report_changes(observed, draft)
    findings = draft.findings.kept
    after = draft.written_over(before).model_copy(
        update={
            "observed_generation": generation,
            "state": verdict.state,
            "warnings": warnings_among(findings) or None,
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
    if after != before and observed.facts.kept_from is not None:
        after = after.model_copy(update={"kept_from": observed.facts.kept_from})
    if draft.counted is not None and draft.counted != before.workers:
        written = observed.facts.status_written_at
        due = None if written is None else written + COUNTERS_EVERY
        if after != before or due is None or due <= observed.now:
            after = after.model_copy(update={"workers": draft.counted})
        else:
            check_at = min(check_at, due) if check_at is not None else due
    announced = (*draft.events, *_announcement(before, after, verdict))
    return Outcome(after, tuple(actions), announced, check_at)


def warnings_among(findings: Iterable[Finding]) -> int:
    return sum(finding.level is Level.WARNING for finding in findings)


def set_aside(observed: Observed, aside: SetAside) -> Outcome:
    """Return the outcome that says why a job is left alone, without a look at its spec, which may be why."""
    job, before = observed.job, observed.job.status
    if before.state in {State.COMPLETE, State.FAILED}:
        return unchanged(observed, check_at=aside.until)
    words = (
        f"The job is set aside: {aside.why}. It is looked at again at {timestamp(aside.until)}; pods that run go on. "
        "If this comes again, make spec.dsConfig and spec.template smaller, and report it with the operator's log."
    )
    verdict = Verdict(before.state or State.INVALID, Reason.QUARANTINED, words)
    generation, now = before.observed_generation or job.metadata.generation, timestamp(observed.now)
    told = conditions(verdict, None, before, generation=generation, now=now, of_spec=not asks_for_another_run(job))
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


def accepted(world: World, batch: Batch | None, *, has_config: bool, warnings: int) -> Verdict:
    """Return why a job is accepted: the batch arithmetic in words, and how many warnings there are beside it."""
    count = f" {warnings} warning{'s' * (warnings > 1)}: kubectl describe and dsjob validate show what to write."
    beside = count if warnings else ""
    if not has_config:
        words = f"The job has no dsConfig: its program configures DeepSpeed.{beside}"
        return Verdict(State.STARTING, Reason.NO_CONFIG, words)
    ranks = "1 rank" if world.size == 1 else f"{world.size} ranks"
    if batch is None or None in {batch.train, batch.micro_per_gpu, batch.accumulation}:
        words = f"The configuration was accepted for {ranks}; its batch sizes are left to the framework."
    else:
        words = (
            f"The configuration fits {ranks}: train_batch_size {batch.train} = micro batch {batch.micro_per_gpu} "
            f"× accumulation {batch.accumulation} × data-parallel size {batch.divisor}."
        )
    return Verdict(State.STARTING, Reason.ACCEPTED, words + beside)


def unchanged(observed: Observed, *actions: Action, check_at: datetime | None = None) -> Outcome:
    """Return an outcome that says nothing new."""
    return Outcome(observed.job.status, actions, (), check_at)


def timestamp(moment: datetime) -> str:
    """Write a moment as Kubernetes does: RFC 3339, UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _announcement(before: DeepSpeedJobStatus, after: DeepSpeedJobStatus, verdict: Verdict) -> tuple[JobEvent, ...]:
    """Announce a change of state or reason; of a refused job also other words, since they list the errors."""
    was, now = said_of_the_run(before), said_of_the_run(after)
    assert now is not None, "a statement sets every condition"
    same = was is not None and (was.state, was.reason, before.attempt) == (now.state, now.reason, after.attempt)
    if same and (was == now or verdict.state is not State.INVALID):
        return ()
    entry = CATALOGUE.get(verdict.reason)
    bad = verdict.state in _BAD_NEWS or entry is None or entry.category is not None
    return (JobEvent("Warning" if bad else "Normal", verdict.reason, verdict.message),)
