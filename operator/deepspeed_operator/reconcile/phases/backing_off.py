"""Between two attempts: the pods of the one that has failed end, and the next begins when its time has come."""

from datetime import timedelta

from deepspeed_operator.api.attempt_status import AttemptOutcome, Phase
from deepspeed_operator.api.status import DeepSpeedJobStatus
from deepspeed_operator.reconcile.actions import Outcome
from deepspeed_operator.reconcile.failure.attempt_end import Succeeded, attempt_end
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import moment
from deepspeed_operator.reconcile.phases.beginning import begin_attempt
from deepspeed_operator.reconcile.phases.ending import SIDECAR_GRACE, end_attempt
from deepspeed_operator.reconcile.phases.removal import delete
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.outcome import report
from deepspeed_operator.reconcile.runtime.observed_rounds import report_rounds


def back_off(observed: Observed, gang: Gang) -> Outcome:
    """End what still runs of the failed attempt, and begin the next one in time, or suspend the run as spec asks."""
    end = attempt_end(observed, gang) if gang.all_succeeded or gang.completed else None
    if isinstance(end, Succeeded):
        return end_attempt(observed, gang, end)  # its pods had come to an end before they could be told to
    draft, begins = StatusDraft.of(observed.job.status, counted=gang.workers), observed.attempt.next_time
    report_rounds(observed, gang, draft)  # of pods that ended after the attempt had
    if observed.job.spec.suspend:
        draft.enter(Phase.STOPPING)
        return report(observed, draft, check_at=observed.now)
    due = moment(begins) if begins is not None else observed.now
    # Its agent has ended a pod's ranks; a sidecar may take the hint.
    grace = {True: SIDECAR_GRACE, False: timedelta(0)}
    alive = [pod for pod in gang.pods.values() if not pod.released]
    ends = {pod.name: pod.since + grace[pod.finished] for pod in alive}
    ripe = [pod for pod in alive if ends[pod.name] <= observed.now]
    later = min((at for at in ends.values() if at > observed.now), default=None)
    # What ends by itself keeps its log, and the next attempt would have it deleted.
    ending = any(pod.deleted_at is None and ends[pod.name] > observed.now for pod in alive)
    if due <= observed.now and not ending:
        draft.counted = None
        elastic, nodes = observed.run.elastic, observed.attempt.next_nodes
        fewer = elastic.size_of(nodes) if elastic is not None and nodes is not None else None
        why = draft.attempts[-1].message if fewer is not None and draft.attempts else None
        return begin_attempt(observed, draft, fewer=fewer, why=why or "")
    check_at = due if due > observed.now else None
    return report(observed, draft, actions=delete((*ripe, *gang.stale)), check_at=check_at).no_later_than(later)


def failed_before(status: DeepSpeedJobStatus) -> int | None:
    """Return the number of the attempt before the current one, if it has failed and the run went on."""
    run, before = status.run, status.attempt_number - 1
    ended = next((each for each in status.attempts if each.number == before), None)
    if run is None or ended is None or (ended.run_id, ended.outcome) != (run.id, AttemptOutcome.FAILED):
        return None
    return before
