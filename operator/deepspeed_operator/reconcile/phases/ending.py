"""The end of an attempt, which so far is that of its run: what came of it, recorded once, and kept."""

from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.attempt_status import AttemptOutcome, Phase
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Failure
from deepspeed_operator.reconcile.actions import Outcome
from deepspeed_operator.reconcile.failure.attempt_end import AttemptEnd
from deepspeed_operator.reconcile.failure.out_of_memory import explained
from deepspeed_operator.reconcile.failure.restart_policy import Complete, FailRun, decide
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import PodView, moment
from deepspeed_operator.reconcile.phases.removal import delete
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.outcome import report, timestamp
from deepspeed_operator.reconcile.runtime.attempt_report import report_attempt
from deepspeed_operator.reconcile.runtime.observed_transport import at_the_end

# A pod whose trainer has ended gets this long to end by itself; then its sidecars hold GPUs for nothing.
SIDECAR_GRACE: Final = timedelta(seconds=10)


def end_attempt(observed: Observed, gang: Gang, end: AttemptEnd) -> Outcome:
    """Do what the restart policy decides. Pods that still run are removed once it is written.

    Unanswered is raised for what status says of an attempt at its end.
    """
    match decide(end):
        case Complete(at):
            # Nodes' clocks may differ from ours.
            completed_at = min(max(at or observed.now, moment(observed.run.start_time)), observed.now)
            return report(observed, _result(observed, gang, completed_at, None), check_at=observed.now)
        case FailRun(failure):
            draft = _result(observed, gang, observed.now, explained(observed, failure))
            if failure.reason in {Reason.TRANSPORT_MISMATCH, Reason.WORLD_MISMATCH}:
                draft.events.clear()  # they would say the same
            return report(observed, draft, check_at=observed.now)


def keep_result(observed: Observed, gang: Gang) -> Outcome:
    """Keep the result; end what still runs. Ended pods stay, for their logs, until the job or its run is replaced."""
    status = observed.job.status
    changed = status.observed_generation != observed.job.metadata.generation and not observed.asks_for_another_run
    if changed:
        return report(observed, check_at=observed.now)
    lingering = [pod for pod in gang.pods.values() if not pod.released and pod.deleted_at is None]
    due = {pod.name: _may_linger_until(pod, observed) for pod in lingering}
    ripe = tuple(pod for pod in lingering if due[pod.name] <= observed.now)
    later = [at for at in due.values() if at > observed.now]
    return Outcome(status, (*delete(gang.stale), *delete(ripe)), (), min(later, default=None))


def _may_linger_until(pod: PodView, observed: Observed) -> datetime:
    return pod.since + SIDECAR_GRACE if pod.finished else observed.now


def _result(observed: Observed, gang: Gang, ended_at: datetime, failure: Failure | None) -> StatusDraft:
    """Return the draft of a status that says what came of a run."""
    draft, at = StatusDraft.of(observed.job.status), timestamp(ended_at)
    draft.workers = gang.workers
    report_attempt(observed, gang, at_the_end(observed.job.status, gang), draft)
    draft.failure = failure
    draft.close_attempt(AttemptOutcome.SUCCEEDED if failure is None else AttemptOutcome.FAILED, at, failure)
    draft.enter(Phase.ENDED)
    draft.complete_run(at)
    return draft
