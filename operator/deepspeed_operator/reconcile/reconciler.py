"""The one reconcile function: what was observed of a job → what to say and what to do."""

from datetime import datetime, timedelta
from functools import partial
from typing import Final

from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.reconcile.actions import DeletePod, Outcome
from deepspeed_operator.reconcile.failure.attempt_end import end_before_suspension
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import PodView
from deepspeed_operator.reconcile.observe.unanswered import Unanswered, meanwhile, together_with
from deepspeed_operator.reconcile.phases.beginning import RunRefusal, begin_attempt, begin_run, refused
from deepspeed_operator.reconcile.phases.ending import end_attempt, result_of
from deepspeed_operator.reconcile.phases.running import SUSPENDING, continue_attempt, delete
from deepspeed_operator.reconcile.report.conditions import (
    Verdict,
    asks_for_another_run,
    is_finished,
    is_suspended,
    is_true,
)
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.statement import beside_refusal, set_aside, state

# A pod whose trainer has ended gets this long to end by itself; then its sidecars hold GPUs for nothing.
SIDECAR_GRACE: Final = timedelta(seconds=10)


def reconcile(observed: Observed, installation: Installation) -> Outcome:
    """Decide about one job. Pure: the same observation always gives the same outcome.

    The outcome's questions are to be answered into the facts, and reconcile asked again. A job that is being
    deleted gets neither write nor child: garbage collection ends its children.
    """
    try:
        return _decide(observed, installation)
    except Unanswered as unanswered:
        return unanswered.outcome(observed.job.status)


def _decide(observed: Observed, installation: Installation) -> Outcome:
    job, status = observed.job, observed.job.status
    if job.metadata.deletion_timestamp is not None:
        return Outcome(status)
    if observed.facts.aside is not None:
        return set_aside(observed, observed.facts.aside)
    if status.attempt is None:
        begun = begin_run(observed, installation)
        return begun if isinstance(begun, Outcome) else refused(observed, begun)
    nodes = status.world.nodes if status.world is not None else job.spec.nodes
    gang = Gang.of(observed.pods, job=job.metadata.name, uid=job.metadata.uid, attempt=status.attempt, nodes=nodes)
    return (_judge_next if asks_for_another_run(job) else _advance)(observed, gang, installation)


def _judge_next(observed: Observed, gang: Gang, installation: Installation) -> Outcome:
    """Decide about the accepted run, then judge the run that spec asks for, and let it take that one's place.

    A refused one changes nothing of it, whatever it costs to judge.
    """
    status, judge_wanted_run = observed.job.status, partial(begin_run, observed, installation)
    with together_with(judge_wanted_run):
        accepted_run = _advance(observed, gang, installation)
    with meanwhile(accepted_run):
        begun = judge_wanted_run()
    if isinstance(begun, RunRefusal):
        return beside_refusal(observed, accepted_run, begun.verdict, begun.retry_at)
    if begun.status == status:  # it waits to be judged
        return accepted_run.no_later_than(begun.check_at)
    ended_just_now = accepted_run.status.completion_time != status.completion_time
    ending = observed.job.spec.suspend and not is_finished(status) and not (is_suspended(status) and gang.none_left)
    return accepted_run if ended_just_now or ending else begun


def _advance(observed: Observed, gang: Gang, installation: Installation) -> Outcome:
    """Decide about the accepted run."""
    status = observed.job.status
    if is_finished(status):
        return _finished(observed, gang)
    if is_suspended(status):
        return _suspending(observed, gang)
    return continue_attempt(observed, gang, installation)


def _finished(observed: Observed, gang: Gang) -> Outcome:
    """Keep the result; end what still runs. Ended pods stay, for their logs, until the job or its run is replaced."""
    status = observed.job.status
    stated = is_true(status, ConditionType.COMPLETE) or is_true(status, ConditionType.FAILED)
    changed = status.observed_generation != observed.job.metadata.generation and not asks_for_another_run(observed.job)
    if not stated or changed:
        return state(observed, result_of(gang, status.failure), check_at=observed.now)
    lingering = [pod for pod in gang.pods.values() if not pod.released and pod.deleted_at is None]
    due = {pod.name: _may_linger_until(pod, observed) for pod in lingering}
    ripe = tuple(pod for pod in lingering if due[pod.name] <= observed.now)
    later = [at for at in due.values() if at > observed.now]
    return Outcome(status, (*delete(gang.stale), *delete(ripe)), (), min(later, default=None))


def _may_linger_until(pod: PodView, observed: Observed) -> datetime:
    return pod.since + SIDECAR_GRACE if pod.finished else observed.now


def _suspending(observed: Observed, gang: Gang) -> Outcome:
    """Remove the pods of a suspended attempt; a result that was there before its pod's deletion wins."""
    end = end_before_suspension(gang)
    if end is not None:
        return end_attempt(observed, gang, end)
    counted = StatusDraft.of(observed.job.status, counted=gang.workers)
    suspend, run_id = observed.job.spec.suspend, observed.job.status.run_id
    if not suspend and not asks_for_another_run(observed.job):
        assert observed.job.status.world is not None, "the world is recorded with the run"
        return begin_attempt(observed, observed.job.status.world)
    if gang.none_left:
        resume = "set spec.suspend to false" if suspend else f"set spec.runId back to {run_id!r}"
        words = f"The job is suspended and holds no GPU: {resume} to begin a new attempt."
        verdict = Verdict(State.SUSPENDED, Reason.SUSPENDED, words)
        return state(observed, verdict, counted, actions=delete(gang.stale))
    alive = tuple(pod for pod in gang.pods.values() if not pod.finished)
    # A pod that ended with success stays until its peers have ended: together they may be the result.
    removals = tuple(
        DeletePod(pod.name, pod.uid, pod.resource_version)
        for pod in (alive or tuple(gang.pods.values()))
        if pod.deleted_at is None
    )
    words = f"Run {run_id!r} was suspended, and its pods end. Set spec.runId back to it for a new attempt."
    verdict = SUSPENDING if suspend else Verdict(State.SUSPENDING, Reason.SUSPENDING, words)
    return state(observed, verdict, counted, actions=(*removals, *delete(gang.stale)))
