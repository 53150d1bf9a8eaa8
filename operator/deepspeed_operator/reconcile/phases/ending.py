"""The end of an attempt: another one follows, or it is that of its run, recorded once, and kept."""

from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.attempt_status import AttemptOutcome, Obstacle, Phase
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Failure
from deepspeed_operator.job.failure_rules import points_at_node
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.reconcile.actions import Outcome
from deepspeed_operator.reconcile.failure.attempt_end import AttemptEnd
from deepspeed_operator.reconcile.failure.out_of_memory import explained
from deepspeed_operator.reconcile.failure.restart_policy import Complete, FailRun, NewAttempt, decide
from deepspeed_operator.reconcile.failure.run_record import run_record
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import PodView, moment
from deepspeed_operator.reconcile.phases.cleanup import clean_up, deletes_finished_pods, kept_until
from deepspeed_operator.reconcile.phases.removal import delete
from deepspeed_operator.reconcile.phases.resizing import fewer_nodes
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.outcome import report, timestamp
from deepspeed_operator.reconcile.runtime.attempt_report import report_attempt
from deepspeed_operator.reconcile.runtime.observed_checkpoint import report_checkpoint
from deepspeed_operator.reconcile.runtime.observed_progress import last_progress, observed_progress
from deepspeed_operator.reconcile.runtime.observed_rounds import latest_rounds, report_rounds
from deepspeed_operator.reconcile.runtime.observed_transport import at_the_end

# A pod whose trainer has ended gets this long to end by itself; then its sidecars hold GPUs for nothing.
SIDECAR_GRACE: Final = timedelta(seconds=10)


def end_attempt(observed: Observed, gang: Gang, end: AttemptEnd) -> Outcome:
    """Do what the restart policy decides. Pods that still run are removed once it is written.

    Unanswered is raised for what status says of an attempt at its end.
    """
    draft = StatusDraft.of(observed.job.status)
    report_rounds(observed, gang, draft)
    assert draft.run is not None, "only an attempt at a run can end"
    assert draft.attempt is not None, "only an attempt can end"
    report_checkpoint(observed, gang, draft, at_the_end=True)
    record = run_record(observed, gang, draft.run, draft.attempt, latest_rounds(observed, gang))
    match decide(end, observed.policy, record, observed.now):
        case Complete(at):
            # Nodes' clocks may differ from ours.
            completed_at = min(max(at or observed.now, moment(observed.run.start_time)), observed.now)
            return report(observed, _result(observed, gang, completed_at, None), check_at=observed.now)
        case NewAttempt() as following:
            return _begin_again(observed, gang, draft, following)
        case FailRun(failure):
            return fail_run(observed, gang, failure)


def _begin_again(observed: Observed, gang: Gang, draft: StatusDraft, following: NewAttempt) -> Outcome:
    """Record why the attempt has failed and that another one follows; what is left of it ends after that."""
    failure, now = explained(observed, following.failure), timestamp(observed.now)
    begins = timestamp(following.not_before)
    draft.workers = gang.workers
    draft.progress = last_progress(observed, gang, observed.now) or observed_progress(observed)
    draft.close_attempt(AttemptOutcome.FAILED, now, failure)
    replaced = {each.pod for each in observed.attempt.replacements or ()}  # whose nodes are blamed already
    if failure.node is not None and points_at_node(failure.reason) and failure.pod not in replaced:
        draft.blame(failure.node, observed.now)
    draft.count_restart(following.budget, following.repeated, observed.now)
    seconds = round((moment(begins) - moment(now)).total_seconds())
    cause = failure.message.partition("\n")[0].rstrip(" .")
    fewer = fewer_nodes(observed, gang)
    with_fewer = f" with {fewer.nodes} nodes, for which there is room," if fewer is not None else ""
    words = (
        f"Attempt {gang.attempt + 1} begins{with_fewer} in {seconds} s (at {begins}): {cause}; {following.words}. "
        "Nothing is to be done; spec.suspend keeps it from beginning."
    )
    nodes = fewer.nodes if fewer is not None else None
    draft.back_off(begins, Obstacle(reason=failure.reason, message=words), nodes)
    return report(observed, draft, check_at=observed.now)


def fail_run(observed: Observed, gang: Gang, failure: Failure) -> Outcome:
    """Fail the run by this cause. Pods that still run are removed once it is written.

    Unanswered is raised as by end_attempt.
    """
    draft = _result(observed, gang, observed.now, explained(observed, failure))
    if failure.reason in {Reason.TRANSPORT_MISMATCH, Reason.WORLD_MISMATCH, Reason.RESUME_MISMATCH}:
        draft.events.clear()  # they would say the same
    return report(observed, draft, check_at=observed.now)


def keep_result(observed: Observed, gang: Gang, installation: Installation) -> Outcome:
    """Keep the result; end what still runs. What has ended stays for as long as spec.lifecycle says."""
    status = observed.job.status
    changed = status.observed_generation != observed.job.metadata.generation and not observed.asks_for_another_run
    if changed:
        return report(observed, check_at=observed.now)
    keep_until = kept_until(observed)
    if keep_until is not None and keep_until <= observed.now:
        return clean_up(observed, gang, installation)
    staying = [pod for pod in (*gang.pods.values(), *gang.kept) if pod.deleted_at is None]
    due = {pod.name: at for pod in staying if (at := _may_stay_until(pod, observed)) is not None}
    ripe = tuple(pod for pod in staying if pod.name in due and due[pod.name] <= observed.now)
    later = min((at for at in due.values() if at > observed.now), default=None)
    return Outcome(status, (*delete(gang.stale), *delete(ripe)), (), later).no_later_than(keep_until)


def _may_stay_until(pod: PodView, observed: Observed) -> datetime | None:
    """Return how long a pod may stay after the end of its run; None if it may for as long as its job does."""
    if not pod.finished:
        return observed.now
    if not pod.released:
        return pod.since + SIDECAR_GRACE
    return observed.now if deletes_finished_pods(observed) else None


def _result(observed: Observed, gang: Gang, ended_at: datetime, failure: Failure | None) -> StatusDraft:
    """Return the draft of a status that says what came of a run."""
    draft, at = StatusDraft.of(observed.job.status), timestamp(ended_at)
    draft.workers = gang.workers
    report_rounds(observed, gang, draft)
    report_attempt(observed, gang, at_the_end(observed.job.status, gang), draft, at_the_end=True)
    # A result is more than what was seen last before it: the steps after that only the agent's last words tell.
    draft.progress = last_progress(observed, gang, ended_at) or (observed_progress(observed) if failure else None)
    draft.failure = failure
    draft.close_attempt(AttemptOutcome.SUCCEEDED if failure is None else AttemptOutcome.FAILED, at, failure)
    draft.enter(Phase.ENDED)
    draft.complete_run(at)
    return draft
