"""What rank 0's agent tells of the run's checkpoints: in status, and an event where it has mended `latest`."""

from typing import Final

from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.progress import ProgressSource
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Finding
from deepspeed_operator.reconcile.actions import JobEvent
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.latest_checkpoint import latest_checkpoint
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.report.draft import StatusDraft

# What counts the steps of a run, and not those since a start.
_COUNTED: Final = frozenset(
    {
        ProgressSource.DEEPSPEED_ENGINE,
        ProgressSource.DEEPSPEED_LOG,
        ProgressSource.TRAINER_LOG,
        ProgressSource.KUBEFLOW_CALLBACK,
    }
)


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
    if not at_the_end:
        found = _from_zero(observed)
        draft.findings.replace({Code.RESTARTED_FROM_ZERO}, *found)
        if not all(map(draft.findings.knew, found)):
            draft.events.append(JobEvent("Warning", Reason.RESTARTED_FROM_ZERO, " ".join(f"{each}" for each in found)))


def _from_zero(observed: Observed) -> list[Finding]:
    """Return what is to be said of ranks whose steps, of one answer, are below that which they could go on from."""
    report = observed.agent
    if report is None or report.checkpoint is None or report.progress is None:
        return []
    began, checkpoint, progress = report.checkpoint.began_with, report.checkpoint.checkpoint, report.progress
    if began is None or progress.step is None or progress.step >= began or progress.source not in _COUNTED:
        return []
    words = (
        f"the ranks train at a step below {began}, that of the newest complete checkpoint in {checkpoint.path} when "
        "they began: what was computed until then is computed again."
    )
    fix = (
        "Let the program load its checkpoint: write $(RESUME_FROM) in spec.training.args, or call load_checkpoint() "
        "with the directory; docs/checkpoints.md."
    )
    return [warning("spec.training", Code.RESTARTED_FROM_ZERO, words, fix)]
