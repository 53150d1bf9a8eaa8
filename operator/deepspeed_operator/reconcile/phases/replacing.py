"""Pods of a running attempt are lost: others take their places, while the rest of the gang waits in its own."""

from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.attempt_status import MAX_LOSS, AttemptStatus, Obstacle, Phase, Replacement
from deepspeed_operator.api.names import pod_name
from deepspeed_operator.api.restarts import Restarts
from deepspeed_operator.api.status import Failure
from deepspeed_operator.job.failure_rules import points_at_node
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.reconcile.actions import Action, ConfirmMissing, Outcome
from deepspeed_operator.reconcile.failure.attempt_end import AttemptEnd, Failed, end_by_loss
from deepspeed_operator.reconcile.failure.slow_start import lateness
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import moment
from deepspeed_operator.reconcile.observe.rounds import Rounds
from deepspeed_operator.reconcile.observe.unanswered import meanwhile
from deepspeed_operator.reconcile.phases.ending import end_attempt
from deepspeed_operator.reconcile.phases.lost_members import LostMember
from deepspeed_operator.reconcile.phases.removal import delete
from deepspeed_operator.reconcile.phases.starting import addresses, agent_due, ask_agent, children, obstacle
from deepspeed_operator.reconcile.report.blamed_nodes import excluded
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.outcome import keep_status, report, timestamp
from deepspeed_operator.reconcile.report.verdict import sentence
from deepspeed_operator.reconcile.runtime.observed_rounds import report_rounds

_NEWS: Final = timedelta(seconds=5)  # an older answer of an agent may not know the round that runs now
_LIMIT: Final = "spec.failurePolicy.replacementDeadlineSeconds"


def replace_lost(observed: Observed, gang: Gang, lost: tuple[LostMember, ...]) -> Outcome:
    """Record that other pods take the places of these; they are made once it is written."""
    draft = StatusDraft.of(observed.job.status, counted=gang.workers)
    report_rounds(observed, gang, draft)
    first = len(observed.attempt.replacements or ()) + 1
    records = [_record(observed, gang, each, number) for number, each in enumerate(lost, first)]
    for record in records:
        if record.node is not None and points_at_node(record.reason):
            draft.blame(record.node, observed.now)
    if observed.policy.avoid_blamed_nodes:
        assert draft.run is not None, "an attempt is one at a run"
        draft.exclude_nodes(excluded(draft.run, observed.now))
    draft.replace_pods(records)
    draft.enter(Phase.REPLACING, _why(observed, gang, draft.attempt, None))
    return report(observed, draft, check_at=observed.now)


def replacing(observed: Observed, gang: Gang, installation: Installation) -> Outcome:
    """Make the pods that take the places of lost ones, until the ranks of all run again or it has taken too long."""
    if any(index in gang.lost or index not in gang.replacements for index in gang.missing):
        observed.facts.want(ConfirmMissing(gang.missing_names))
        return end_attempt(observed, gang, as_recorded(observed, end_by_loss(gang)))
    removals, until = delete(gang.stale), _deadline(observed)
    late, look_at = lateness(observed, gang)
    published = addresses(observed, gang, installation, doubted=late) if gang.all_addressed else ()
    if gang.all_ranks_running:
        with meanwhile(keep_status(observed, *removals, *published)):
            _ask_of_this_round(observed, gang)
        draft = StatusDraft.of(observed.job.status, counted=gang.workers)
        draft.enter(Phase.RUNNING)
        report_rounds(observed, gang, draft)
        _count_untold(observed, draft)
        return report(observed, draft, actions=(*removals, *published), check_at=agent_due(observed, gang))
    if until <= observed.now:
        return end_attempt(observed, gang, _not_replaced(observed, _latest(observed.attempt)))
    held, retry_at = _refused(observed, gang)
    made: tuple[Action, ...] = ()
    if (gang.missing or late) and retry_at is None:
        with meanwhile(keep_status(observed, *removals)):
            wanted = children(observed, gang, installation)
        held, made = (wanted, ()) if isinstance(wanted, Obstacle) else (held, wanted)
    draft = StatusDraft.of(observed.job.status, counted=gang.workers)
    draft.enter(Phase.REPLACING, _why(observed, gang, observed.attempt, held or obstacle(observed, gang)))
    outcome = report(observed, draft, actions=(*removals, *made, *published), check_at=until)
    return outcome.no_later_than(retry_at).no_later_than(look_at)


def as_recorded(observed: Observed, end: AttemptEnd) -> AttemptEnd:
    """Return the end of an attempt by the cause that is recorded, where it ends for want of a pod that was lost."""
    if isinstance(end, Failed) and observed.attempt.phase is Phase.REPLACING:
        for each in reversed(observed.attempt.replacements or ()):
            if each.pod == end.failure.pod:
                return _not_replaced(observed, each)
    return end


def _record(observed: Observed, gang: Gang, lost: LostMember, number: int) -> Replacement:
    return Replacement(
        number=number,
        index=lost.index,
        time=timestamp(observed.now),
        reason=lost.failure.reason,
        pod=gang.name_of(lost.index),
        node=lost.node,
        fenced=lost.fenced,
        message=lost.failure.message.partition("\n")[0][:MAX_LOSS],
    )


def _why(observed: Observed, gang: Gang, attempt: AttemptStatus | None, held: Obstacle | None) -> Obstacle:
    """Return what is to be said meanwhile; `held` is what keeps a pod from starting, None if nothing is known to."""
    assert attempt is not None, "an attempt is recorded before it loses pods"
    latest, until = _latest(attempt), _deadline(observed, attempt)
    at_once = [each for each in attempt.replacements or () if each.time == latest.time]
    successor = pod_name(gang.job, gang.attempt, latest.index, latest.number)
    more = f", and {len(at_once) - 1} more are replaced" if len(at_once) > 1 else ""
    words = (
        f"{sentence(latest.message)} Pod {successor} takes its place"
        f"{more}; the other pods wait in theirs, with their GPUs, until {timestamp(until)} at the latest, then a new "
        f"attempt begins ({_LIMIT})."
    )
    words = f"{words} {held.message}" if held is not None else f"{words} Nothing is to be done."
    return Obstacle(reason=latest.reason, message=words)


def _refused(observed: Observed, gang: Gang) -> tuple[Obstacle | None, datetime | None]:
    """Return what is to be said of pods that the API server refuses, and when they are tried again; None if none is."""
    refusal = observed.facts.refusal
    if refusal is None or refusal.attempt != gang.attempt or refusal.retry_at <= observed.now:
        return None, None
    words = f"The API server refuses it, and it is tried again: {sentence(refusal.message)} Make room for it."
    return Obstacle(reason=refusal.reason, message=words), refusal.retry_at


def _ask_of_this_round(observed: Observed, gang: Gang) -> None:
    """Raise Unanswered to learn what the agents have counted, unless they were asked just now."""
    report = observed.agent
    if report is None or report.read_at + _NEWS <= observed.now:
        ask_agent(observed, gang)


def _count_untold(observed: Observed, draft: StatusDraft) -> None:
    """Count the restart where no agent tells: what one tells later is this one, too, as counts only grow."""
    report, attempt = observed.agent, draft.attempt
    if attempt is None or (report is not None and report.rounds is not None):
        return
    known = attempt.restarts or Restarts()
    more = Rounds(number=attempt.round + 1, user=known.user, infrastructure=known.infrastructure + 1)
    draft.count_rounds(more, observed.now)


def _not_replaced(observed: Observed, record: Replacement) -> Failed:
    seconds = observed.policy.replacement_deadline_seconds
    words = f"{sentence(record.message)} The ranks did not run with a pod in its place within {seconds} s ({_LIMIT})"
    return Failed(Failure(reason=record.reason, pod=record.pod, node=record.node, message=words))


def _latest(attempt: AttemptStatus) -> Replacement:
    assert attempt.replacements, "who replaces has recorded it"
    return attempt.replacements[-1]


def _deadline(observed: Observed, attempt: AttemptStatus | None = None) -> datetime:
    latest = _latest(attempt or observed.attempt)
    return moment(latest.time) + timedelta(seconds=observed.policy.replacement_deadline_seconds)
