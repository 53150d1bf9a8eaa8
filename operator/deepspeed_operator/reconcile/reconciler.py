"""The one reconcile function: what was observed of a job → what to say and what to do."""

from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.reconcile.actions import DeletePod, Outcome
from deepspeed_operator.reconcile.failure.first_failure import agent_message, first_failure
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import PodView
from deepspeed_operator.reconcile.phases.beginning import begin_attempt, begin_run
from deepspeed_operator.reconcile.phases.running import SUSPENDING, complete, continue_attempt, delete, fail, result_of
from deepspeed_operator.reconcile.report.conditions import Reason, Verdict, is_finished, is_suspended, is_true
from deepspeed_operator.reconcile.report.statement import set_aside, state

# A pod whose trainer has ended gets this long to end by itself; then its sidecars hold GPUs for nothing.
SIDECAR_GRACE: Final = timedelta(seconds=10)
_ENDED_BY_SUSPENSION: Final = frozenset({"Terminated", "PeerLost"})


def reconcile(observed: Observed, installation: Installation) -> Outcome:
    """Decide about one job. Pure: the same observation always gives the same outcome.

    The outcome's questions are to be answered into the facts, and reconcile asked again. A job that is being
    deleted gets neither write nor child: garbage collection ends its children.
    """
    job, status = observed.job, observed.job.status
    if job.metadata.deletion_timestamp is not None:
        return Outcome(status)
    if observed.facts.aside is not None:
        return set_aside(observed, observed.facts.aside)
    if status.attempt is None:
        return begin_run(observed, installation)
    nodes = status.world.nodes if status.world is not None else job.spec.nodes
    gang = Gang.of(observed.pods, job=job.metadata.name, uid=job.metadata.uid, attempt=status.attempt, nodes=nodes)
    # Suspension is obeyed before another run is judged, whatever comes of that.
    suspended_first = job.spec.suspend and not is_finished(status) and not (is_suspended(status) and gang.none_left)
    if status.run_id != job.spec.run_id and not suspended_first:
        return begin_run(observed, installation)
    if is_finished(status):
        return _finished(observed, gang)
    if is_suspended(status):
        return _suspending(observed, gang)
    return continue_attempt(observed, gang, installation)


def _finished(observed: Observed, gang: Gang) -> Outcome:
    """Keep the result; end what still runs. Ended pods stay, for their logs, until the job or its run is replaced."""
    status = observed.job.status
    stated = is_true(status, ConditionType.COMPLETE) or is_true(status, ConditionType.FAILED)
    if not stated or status.observed_generation != observed.job.metadata.generation:
        # Spec was changed, or another run was asked for, refused, and taken back.
        return state(observed, result_of(gang, status.failure), check_at=observed.now)
    lingering = [pod for pod in gang.pods.values() if not pod.released and pod.deleted_at is None]
    due = {pod.name: _may_linger_until(pod, observed) for pod in lingering}
    ripe = tuple(pod for pod in lingering if due[pod.name] <= observed.now)
    later = [at for at in due.values() if at > observed.now]
    return Outcome(status, (*delete(gang.late), *delete(ripe)), (), min(later, default=None))


def _may_linger_until(pod: PodView, observed: Observed) -> datetime:
    return pod.since + SIDECAR_GRACE if pod.finished else observed.now


def _suspending(observed: Observed, gang: Gang) -> Outcome:
    """Remove the pods of a suspended attempt; a result that was there before its pod's deletion wins."""
    if gang.all_succeeded:
        return complete(observed, gang)
    own = {index: pod for index, pod in gang.pods.items() if not _ended_by_suspension(pod)}
    before = Gang(gang.job, gang.attempt, gang.nodes, own, gang.late, gang.foreign)
    if before.failed:
        return fail(observed, gang, first_failure(before))
    if not observed.job.spec.suspend:
        assert observed.job.status.world is not None, "the world is recorded with the run"
        return begin_attempt(observed, observed.job.status.world)
    if gang.none_left:
        words = "The job is suspended and holds no GPU: set spec.suspend to false to begin a new attempt."
        verdict = Verdict(State.SUSPENDED, Reason.SUSPENDED, words)
        return state(observed, verdict, gang=gang, actions=delete(gang.late))
    alive = tuple(pod for pod in gang.pods.values() if not pod.finished)
    # A pod that ended with success stays until its peers have ended: together they may be the result.
    removals = tuple(
        DeletePod(pod.name, pod.uid, pod.resource_version)
        for pod in (alive or tuple(gang.pods.values()))
        if pod.deleted_at is None
    )
    return state(observed, SUSPENDING, gang=gang, actions=(*removals, *delete(gang.late)))


def _ended_by_suspension(pod: PodView) -> bool:
    """Whether the pod's failure is the work of our own deletion, of it or of a peer."""
    said = agent_message(pod.termination.message) if pod.termination is not None else None
    return pod.deleted_at is not None or (said is not None and said.reason in _ENDED_BY_SUSPENSION)
