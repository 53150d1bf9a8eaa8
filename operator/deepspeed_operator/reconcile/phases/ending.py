"""The end of an attempt, and with it of a run: what came of it, recorded once."""

from datetime import datetime

from deepspeed_operator.api.attempt_status import AttemptOutcome, Phase
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Failure
from deepspeed_operator.reconcile.actions import Outcome
from deepspeed_operator.reconcile.failure.attempt_end import AttemptEnd
from deepspeed_operator.reconcile.failure.out_of_memory import explained
from deepspeed_operator.reconcile.failure.restart_policy import Complete, FailRun, decide
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import moment
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.outcome import report, timestamp
from deepspeed_operator.reconcile.runtime.attempt_report import report_attempt
from deepspeed_operator.reconcile.runtime.observed_transport import at_the_end


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
