"""An attempt that was told to end: its pods go, and another attempt follows when the job is resumed."""

from deepspeed_operator.api.attempt_status import AttemptOutcome, Phase
from deepspeed_operator.reconcile.actions import Outcome
from deepspeed_operator.reconcile.failure.attempt_end import end_before_suspension
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.phases.beginning import begin_attempt
from deepspeed_operator.reconcile.phases.ending import end_attempt
from deepspeed_operator.reconcile.phases.removal import delete, delete_unless_changed
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.outcome import report, timestamp
from deepspeed_operator.reconcile.runtime.observed_checkpoint import report_checkpoint
from deepspeed_operator.reconcile.runtime.observed_rounds import report_rounds


def suspend_attempt(observed: Observed, gang: Gang) -> Outcome:
    """Remove the pods of a suspended attempt; a result that was there before its pod's deletion wins."""
    attempts = observed.job.status.attempts
    failed_before = bool(attempts) and attempts[-1].number == gang.attempt  # another attempt was to follow
    end = None if failed_before else end_before_suspension(gang)
    if end is not None:
        return end_attempt(observed, gang, end)
    draft, now = StatusDraft.of(observed.job.status, counted=gang.workers), timestamp(observed.now)
    report_rounds(observed, gang, draft)
    report_checkpoint(observed, gang, draft, at_the_end=True)
    if not observed.job.spec.suspend and not observed.asks_for_another_run:
        draft.close_attempt(AttemptOutcome.SUSPENDED, now)
        draft.counted = None
        return begin_attempt(observed, draft)
    if gang.none_left:
        draft.close_attempt(AttemptOutcome.SUSPENDED, now)
        draft.enter(Phase.SUSPENDED)
        return report(observed, draft, actions=delete((*gang.kept, *gang.stale)))
    return report(observed, draft, actions=(*delete_unless_changed(gang), *delete((*gang.kept, *gang.stale))))
