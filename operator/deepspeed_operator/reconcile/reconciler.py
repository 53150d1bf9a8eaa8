"""The one reconcile function: what was observed of a job → what to say and what to do."""

from datetime import datetime, timedelta
from functools import partial
from typing import Final

from deepspeed_operator.api.attempt_status import AttemptOutcome, Phase
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.reconcile.actions import DeletePod, Outcome
from deepspeed_operator.reconcile.failure.attempt_end import end_before_suspension
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import PodView
from deepspeed_operator.reconcile.observe.unanswered import Unanswered, meanwhile, together_with
from deepspeed_operator.reconcile.phases.beginning import RunRefusal, begin_attempt, begin_run, refused
from deepspeed_operator.reconcile.phases.ending import end_attempt
from deepspeed_operator.reconcile.phases.running import continue_attempt, delete
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.outcome import beside_refusal, report, set_aside, timestamp

# A pod whose trainer has ended gets this long to end by itself; then its sidecars hold GPUs for nothing.
SIDECAR_GRACE: Final = timedelta(seconds=10)
_TOLD_TO_END: Final = frozenset({Phase.STOPPING, Phase.SUSPENDED})


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
    if status.run is None:
        begun = begin_run(observed, installation)
        return begun if isinstance(begun, Outcome) else refused(observed, begun)
    number, nodes = observed.attempt.number, status.run.world.nodes
    gang = Gang.of(observed.pods, job=job.metadata.name, uid=job.metadata.uid, attempt=number, nodes=nodes)
    return (_judge_next if observed.asks_for_another_run else _advance)(observed, gang, installation)


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
    phase, next_run = observed.attempt.phase, accepted_run.status.run
    ended_just_now = next_run is not None and next_run.completion_time != observed.run.completion_time
    stopped = phase is Phase.ENDED or (phase in _TOLD_TO_END and gang.none_left)
    return accepted_run if ended_just_now or (observed.job.spec.suspend and not stopped) else begun


def _advance(observed: Observed, gang: Gang, installation: Installation) -> Outcome:
    """Decide about the accepted run."""
    if observed.attempt.phase is Phase.ENDED:
        return _finished(observed, gang)
    if observed.attempt.phase in _TOLD_TO_END:
        return _suspending(observed, gang)
    return continue_attempt(observed, gang, installation)


def _finished(observed: Observed, gang: Gang) -> Outcome:
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


def _suspending(observed: Observed, gang: Gang) -> Outcome:
    """Remove the pods of a suspended attempt; a result that was there before its pod's deletion wins."""
    end = end_before_suspension(gang)
    if end is not None:
        return end_attempt(observed, gang, end)
    draft, now = StatusDraft.of(observed.job.status, counted=gang.workers), timestamp(observed.now)
    if not observed.job.spec.suspend and not observed.asks_for_another_run:
        draft.close_attempt(AttemptOutcome.SUSPENDED, now)
        draft.counted = None
        return begin_attempt(observed, draft)
    if gang.none_left:
        draft.close_attempt(AttemptOutcome.SUSPENDED, now)
        draft.enter(Phase.SUSPENDED)
        return report(observed, draft, actions=delete(gang.stale))
    alive = tuple(pod for pod in gang.pods.values() if not pod.finished)
    # A pod that ended with success stays until its peers have ended: together they may be the result.
    removals = tuple(
        DeletePod(pod.name, pod.uid, pod.resource_version)
        for pod in (alive or tuple(gang.pods.values()))
        if pod.deleted_at is None
    )
    return report(observed, draft, actions=(*removals, *delete(gang.stale)))
