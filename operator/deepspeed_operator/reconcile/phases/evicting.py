"""An attempt whose queue takes the quota back: its pods end with their grace to save, and it waits for another turn."""

from deepspeed_operator.api.attempt_status import AttemptOutcome, Obstacle
from deepspeed_operator.api.status import Failure
from deepspeed_operator.reconcile.actions import Outcome
from deepspeed_operator.reconcile.failure.attempt_end import end_before_suspension
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.known_workload import known_workload
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.phases.beginning import begin_attempt
from deepspeed_operator.reconcile.phases.ending import end_attempt
from deepspeed_operator.reconcile.phases.removal import delete, delete_unless_changed
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.outcome import report, timestamp
from deepspeed_operator.reconcile.report.queue_words import reclaimed
from deepspeed_operator.reconcile.runtime.observed_checkpoint import report_checkpoint
from deepspeed_operator.reconcile.runtime.observed_rounds import report_rounds


def lost_quota(observed: Observed) -> Obstacle | None:
    """Return why the current attempt may not go on, by its queue; None if it may, or nobody can tell.

    Raise Unanswered to ask. Where Kueue is gone, what runs goes on.
    """
    queue = observed.job.status.queue
    if queue is None or queue.name is None or queue.workload is None:
        return None
    answer = known_workload(observed)
    if answer.problem is not None or (answer.view is not None and (answer.view.admitted or answer.view.finished)):
        return None
    return reclaimed(queue, answer.view)


def stop_evicted(observed: Observed, gang: Gang) -> Outcome:
    """Remove the pods of an evicted attempt; a result that was there before its pod's deletion wins."""
    end = end_before_suspension(gang)
    if end is not None:
        return end_attempt(observed, gang, end)
    draft, now = StatusDraft.of(observed.job.status, counted=gang.workers), timestamp(observed.now)
    report_rounds(observed, gang, draft)
    report_checkpoint(observed, gang, draft, at_the_end=True)
    if not gang.none_left:
        return report(observed, draft, actions=(*delete_unless_changed(gang), *delete((*gang.kept, *gang.stale))))
    why = observed.attempt.obstacle
    assert why is not None, "why an attempt is evicted is recorded with the phase"
    draft.close_attempt(AttemptOutcome.EVICTED, now, Failure(reason=why.reason, message=why.message))
    draft.count_restart(None, observed.run.repeated, observed.now)
    draft.counted = None
    return begin_attempt(observed, draft)
