"""The end of an attempt, and with it of a run: what came of it, recorded once."""

from datetime import datetime

from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Failure, State
from deepspeed_operator.reconcile.actions import Outcome
from deepspeed_operator.reconcile.failure.attempt_end import AttemptEnd
from deepspeed_operator.reconcile.failure.first_failure import headline
from deepspeed_operator.reconcile.failure.out_of_memory import explained
from deepspeed_operator.reconcile.failure.restart_policy import Complete, FailRun, decide
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import moment
from deepspeed_operator.reconcile.report.conditions import Verdict
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.statement import state, timestamp
from deepspeed_operator.reconcile.runtime.attempt_report import report_attempt
from deepspeed_operator.reconcile.runtime.observed_transport import at_the_end


def end_attempt(observed: Observed, gang: Gang, end: AttemptEnd) -> Outcome:
    """Do what the restart policy decides. Pods that still run are removed once it is written.

    Unanswered is raised for what status says of an attempt at its end.
    """
    match decide(end):
        case Complete(at):
            start = observed.job.status.start_time
            assert start is not None, "it is recorded with the run"
            completed_at = min(max(at or observed.now, moment(start)), observed.now)  # nodes' clocks may differ
            return _end_run(observed, gang, _result(observed, gang, completed_at))
        case FailRun(failure):
            draft = _result(observed, gang, observed.now)
            draft.failure = explained(observed, failure)
            if failure.reason in {Reason.TRANSPORT_MISMATCH, Reason.WORLD_MISMATCH}:
                draft.events.clear()  # they would say the same
            return _end_run(observed, gang, draft)


def result_of(gang: Gang, failure: Failure | None) -> Verdict:
    """Return what is said of a run that has ended, by this failure, or with success where it is None."""
    if failure is not None:
        return Verdict(State.FAILED, failure.reason, headline(failure))
    pods = "The pod" if gang.nodes == 1 else f"All {gang.nodes} pods"
    words = f"{pods} ended with success. Set a new spec.runId to run it again."
    return Verdict(State.COMPLETE, Reason.COMPLETED, words)


def _end_run(observed: Observed, gang: Gang, draft: StatusDraft) -> Outcome:
    return state(observed, result_of(gang, draft.failure), draft, check_at=observed.now)


def _result(observed: Observed, gang: Gang, ended_at: datetime) -> StatusDraft:
    """Return the draft of a status that says what came of a run, but for its failure."""
    draft = StatusDraft.of(observed.job.status)
    draft.completion_time = timestamp(ended_at)
    draft.workers = gang.workers
    report_attempt(observed, gang, at_the_end(observed.job.status, gang), draft)
    return draft
