"""The one reconcile function: what was observed of a job → what to say and what to do."""

from dataclasses import replace
from functools import partial

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.reconcile.actions import Outcome
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.unanswered import Unanswered, meanwhile, together_with
from deepspeed_operator.reconcile.phases.backing_off import back_off, failed_before
from deepspeed_operator.reconcile.phases.beginning import RunRefusal, begin_run, refused
from deepspeed_operator.reconcile.phases.ending import keep_result
from deepspeed_operator.reconcile.phases.evicting import stop_evicted
from deepspeed_operator.reconcile.phases.lost_nodes import lost_pods
from deepspeed_operator.reconcile.phases.queued import wait_in_queue
from deepspeed_operator.reconcile.phases.quota import with_queue
from deepspeed_operator.reconcile.phases.restored import keep_restored, restored_run, with_end_marked
from deepspeed_operator.reconcile.phases.running import continue_attempt
from deepspeed_operator.reconcile.phases.suspending import suspend_attempt
from deepspeed_operator.reconcile.report.grace import report_grace
from deepspeed_operator.reconcile.report.outcome import beside_refusal, set_aside


def reconcile(observed: Observed, installation: Installation) -> Outcome:
    """Decide about one job. Pure: the same observation always gives the same outcome.

    The outcome's questions are to be answered into the facts, and reconcile asked again. Neither write nor child
    gets a job that is being deleted, whose children garbage collection ends, or one that another controller runs.
    """
    try:
        return _decide(observed, installation)
    except Unanswered as unanswered:
        return unanswered.outcome(observed.job.status)


def _decide(observed: Observed, installation: Installation) -> Outcome:
    job, status = observed.job, observed.job.status
    if job.metadata.deletion_timestamp is not None or job.spec.managed_by:
        return Outcome(status)
    if observed.facts.aside is not None:
        return set_aside(observed, observed.facts.aside)
    restored = restored_run(observed)
    if restored is not None:
        return keep_restored(observed, restored)
    if status.run is None:
        first = _as_new(observed, installation)
        begun = begin_run(first, installation)
        return begun if isinstance(begun, Outcome) else refused(first, begun)
    accepted = observed.with_defaults(status.run.defaults)
    next_run = _as_new(observed, installation) if observed.asks_for_another_run else None
    return with_end_marked(accepted, report_grace(accepted, _about_run(accepted, next_run, installation)))


def _as_new(observed: Observed, installation: Installation) -> Observed:
    """Return the job as a run that begins now has it: with the defaults of today."""
    return observed.with_defaults(installation.fleet.defaults_of(observed.job.metadata.namespace))


def _about_run(observed: Observed, next_run: Observed | None, installation: Installation) -> Outcome:
    """Decide about a job with a run that was accepted.

    `next_run`: the job as the other run that spec asks for; None: it asks for none.
    """
    job, number, nodes = observed.job, observed.attempt.number, observed.run.world.nodes
    name, uid, keeps = job.metadata.name, job.metadata.uid, failed_before(job.status)
    replacements = {index: each.number for index, each in observed.attempt.latest_replacements.items()}
    gang = Gang.of(
        observed.pods, job=name, uid=uid, attempt=number, nodes=nodes, keeps=keeps, replacements=replacements
    )
    if next_run is None:
        return _advance(observed, gang, installation)
    return _judge_next(observed, next_run, gang, installation)


def _judge_next(observed: Observed, next_run: Observed, gang: Gang, installation: Installation) -> Outcome:
    """Decide about the accepted run, then judge the run that spec asks for, and let it take that one's place.

    A refused one changes nothing of it, whatever it costs to judge.
    """
    status, judge_wanted_run = observed.job.status, partial(begin_run, next_run, installation)
    with together_with(judge_wanted_run):
        accepted_run = _advance(observed, gang, installation)
    with meanwhile(accepted_run):
        begun = judge_wanted_run()
    if isinstance(begun, RunRefusal):
        return beside_refusal(observed, accepted_run, begun.verdict, begun.retry_at)
    if begun.status == status:  # it waits to be judged
        return accepted_run.no_later_than(begun.check_at)
    phase, run = observed.attempt.phase, accepted_run.status.run
    ended_just_now = run is not None and run.completion_time != observed.run.completion_time
    after = accepted_run.status.attempt
    failed_just_now = after is not None and after.phase is Phase.BACKING_OFF and phase is not Phase.BACKING_OFF
    told_to_end = phase in {Phase.STOPPING, Phase.EVICTING, Phase.SUSPENDED}
    stopped = phase is Phase.ENDED or (told_to_end and gang.none_left)
    return accepted_run if ended_just_now or failed_just_now or (observed.job.spec.suspend and not stopped) else begun


def _advance(observed: Observed, gang: Gang, installation: Installation) -> Outcome:
    """Decide about the accepted run, and let go of pods whose nodes do not answer."""
    outcome, queue = with_queue(observed, gang, _by_phase(observed, gang, installation)), observed.job.status.queue
    if observed.attempt.phase is Phase.ENDED and (queue is None or queue.held_workload is None):
        return outcome  # nobody waits for what they hold
    forced, later = lost_pods(observed, gang)
    return replace(outcome, actions=(*outcome.actions, *forced)).no_later_than(later)


def _by_phase(observed: Observed, gang: Gang, installation: Installation) -> Outcome:
    match observed.attempt.phase:
        case Phase.QUEUED:
            return wait_in_queue(observed, gang, installation)
        case Phase.EVICTING:
            return stop_evicted(observed, gang)
        case Phase.STARTING | Phase.REFUSED | Phase.RUNNING | Phase.REPLACING:
            return continue_attempt(observed, gang, installation)
        case Phase.BACKING_OFF:
            return back_off(observed, gang)
        case Phase.STOPPING | Phase.SUSPENDED:
            return suspend_attempt(observed, gang)
        case Phase.ENDED:
            return keep_result(observed, gang, installation)
