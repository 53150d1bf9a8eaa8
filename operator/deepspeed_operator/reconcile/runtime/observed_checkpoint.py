"""What rank 0's agent tells of the run's checkpoints: in status, and an event where it has mended `latest`."""

from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.reconcile.actions import JobEvent
from deepspeed_operator.reconcile.observe.checkpoints import CheckpointReport
from deepspeed_operator.reconcile.observe.gang import Gang, last_messages
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.report.draft import StatusDraft


def latest_checkpoint(observed: Observed, gang: Gang) -> CheckpointReport | None:
    """Return the latest that is known of the attempt's checkpoints; None if nothing is."""
    left = next((message.checkpoint for message in last_messages(gang) if message.checkpoint is not None), None)
    if left is not None:
        return left
    report = observed.facts.agent
    return report.checkpoint if report is not None and report.attempt == gang.attempt else None


def report_checkpoint(observed: Observed, gang: Gang, draft: StatusDraft, *, at_the_end: bool = False) -> None:
    """Write what is known of the run's checkpoints; a newer one is no news by itself while the attempt goes on."""
    report, before = latest_checkpoint(observed, gang), observed.job.status.checkpoint
    if report is None:
        return
    now = report.checkpoint
    if now.message is None and before is not None:
        now = now.model_copy(update={"message": before.message})  # an earlier start's
    mended = now.message is not None and (before is None or now.message != before.message)
    if mended:
        words = f"{now.message}. What was computed since is computed again; the torn checkpoint may be deleted."
        draft.events.append(JobEvent("Warning", Reason.CHECKPOINT_REPAIRED, words))
    if mended or at_the_end or before is None:
        draft.checkpoint = now
    else:
        draft.saved = now
