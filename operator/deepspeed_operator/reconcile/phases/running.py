"""An attempt from its first pod to its result."""

from functools import partial

from deepspeed_operator.api.attempt_status import Obstacle, Phase
from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.reconcile.actions import ConfirmMissing, Outcome
from deepspeed_operator.reconcile.failure.active_deadline import active_deadline, deadline_exceeded
from deepspeed_operator.reconcile.failure.attempt_end import Failed, Succeeded, attempt_end, end_by_loss, settles_at
from deepspeed_operator.reconcile.failure.first_failure import ended_by
from deepspeed_operator.reconcile.failure.slow_start import lateness, unheard_of, without_volumes
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.unanswered import meanwhile, together_with
from deepspeed_operator.reconcile.phases.ending import end_attempt, fail_run
from deepspeed_operator.reconcile.phases.evicting import lost_quota
from deepspeed_operator.reconcile.phases.half_placed import giving_back, look_again
from deepspeed_operator.reconcile.phases.lost_members import lost_members
from deepspeed_operator.reconcile.phases.lost_nodes import Losses
from deepspeed_operator.reconcile.phases.removal import delete
from deepspeed_operator.reconcile.phases.replacing import as_recorded, replace_lost, replacing
from deepspeed_operator.reconcile.phases.resizing import resize, resized_at
from deepspeed_operator.reconcile.phases.starting import (
    addresses,
    admitted_since,
    agent_due,
    children,
    consult_agent,
    deadline,
    not_running_in_time,
    obstacle,
    outdated,
)
from deepspeed_operator.reconcile.phases.waiting import waiting_for
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.outcome import keep_status, report, timestamp
from deepspeed_operator.reconcile.report.spec_changes import is_of_another_run
from deepspeed_operator.reconcile.report.verdict import sentence
from deepspeed_operator.reconcile.runtime.attempt_report import report_attempt
from deepspeed_operator.reconcile.runtime.observed_progress import observed_progress
from deepspeed_operator.reconcile.runtime.observed_rounds import report_rounds
from deepspeed_operator.reconcile.runtime.observed_transport import report_transport, reported


def continue_attempt(observed: Observed, gang: Gang, installation: Installation) -> Outcome:
    """Decide about the current attempt of an accepted run. A result wins over everything else."""
    end = attempt_end(observed, gang)
    if isinstance(end, Succeeded):
        return end_attempt(observed, gang, end)
    if _given_back(observed, gang):
        until = deadline(observed, gang)
        if until is not None and observed.now >= until:
            return end_attempt(observed, gang, not_running_in_time(observed, gang))
        return keep_status(observed, *delete((*gang.pods.values(), *gang.stale)), check_at=until)
    replaced = lost_members(observed, gang)
    if replaced:
        return replace_lost(observed, gang, replaced)
    if end is not None:
        return end_attempt(observed, gang, as_recorded(observed, end))
    known_at = settles_at(gang)
    if known_at is not None:
        return keep_status(observed, *delete(gang.stale), check_at=known_at)
    reclaimed = lost_quota(observed) if not observed.job.spec.suspend else None
    if observed.job.spec.suspend or reclaimed is not None:
        draft = StatusDraft.of(observed.job.status, counted=gang.workers)
        draft.enter(Phase.STOPPING if reclaimed is None else Phase.EVICTING, reclaimed)
        return report(observed, draft, check_at=observed.now)
    return _go_on(observed, gang, installation)


def _go_on(observed: Observed, gang: Gang, installation: Installation) -> Outcome:
    """Decide about an attempt that nothing has ended yet but the loss of a node, or time."""
    losses, now = Losses(observed), observed.now
    lost = [pod for pod in gang.pods.values() if (at := losses.given_up_at(pod)) is not None and at <= now]
    if lost:
        return end_attempt(observed, gang, as_recorded(observed, Failed(ended_by(lost[0]))))
    until = active_deadline(observed)
    if until is not None and observed.now >= until:
        return fail_run(observed, gang, deadline_exceeded(observed))
    advance = {Phase.RUNNING: _running, Phase.REPLACING: replacing}.get(observed.attempt.phase, _starting)
    return advance(observed, gang, installation).no_later_than(until)


def _running(observed: Observed, gang: Gang, installation: Installation) -> Outcome:
    if gang.missing:
        observed.facts.want(ConfirmMissing(gang.missing_names))
        return end_attempt(observed, gang, end_by_loss(gang))
    actions = (*delete(gang.stale), *addresses(observed, gang, installation), *outdated(observed, gang, installation))
    draft = StatusDraft.of(observed.job.status, counted=gang.workers)
    with meanwhile(keep_status(observed, *actions)):
        consult_agent(observed, gang)
        report_rounds(observed, gang, draft)
        report_attempt(observed, gang, reported(observed), draft)
    draft.moved = observed_progress(observed)
    return report(observed, draft, actions=actions, check_at=agent_due(observed, gang))


def _starting(observed: Observed, gang: Gang, installation: Installation) -> Outcome:
    removals = delete(gang.stale)
    if gang.all_ranks_running:
        with meanwhile(keep_status(observed, *removals, *addresses(observed, gang, installation))):
            consult_agent(observed, gang)
        draft = _starting_draft(observed, gang)
        draft.run_since(timestamp(observed.now))
        report_rounds(observed, gang, draft)
        report_transport(observed, reported(observed), draft)
        _report_image(observed, draft)
        return report(observed, draft, actions=removals, check_at=agent_due(observed, gang))
    until = deadline(observed, gang)
    if until is not None and observed.now >= until:
        return end_attempt(observed, gang, not_running_in_time(observed, gang))
    waits = _refused(observed, gang) or _waits_for_old_pods(observed, gang)
    if waits is not None:
        return waits.no_later_than(until)
    fewer_at = resized_at(observed, gang)
    if fewer_at is not None and observed.now >= fewer_at:
        return resize(observed, gang)
    with meanwhile(keep_status(observed, *removals)):
        given_back = giving_back(observed, gang)
    if given_back is not None:
        return given_back.no_later_than(until)
    held, (late, look_at) = obstacle(observed, gang), lateness(observed, gang)
    with meanwhile(keep_status(observed, *removals)):
        if late and gang.all_containers_running:
            consult_agent(observed, gang, early=True)
    missing_volumes = partial(without_volumes, observed, gang)
    published = addresses(observed, gang, installation, doubted=late)
    with meanwhile(keep_status(observed, *removals, *published)), together_with(missing_volumes):
        made = children(observed, gang, installation) if gang.missing or late else ()
    if isinstance(made, Obstacle):
        held, made = made, ()
    actions = (*removals, *made, *published)
    with meanwhile(keep_status(observed, *actions)):
        held = held or missing_volumes() or unheard_of(observed, gang)
    draft = _starting_draft(observed, gang)
    if held is not None or observed.attempt.phase is not Phase.REFUSED or not gang.missing:
        draft.enter(Phase.STARTING, _steady(observed, held))  # else the refusal stands until it is known to be over
    due = look_again(observed, gang)
    return (
        report(observed, draft, actions=actions, check_at=look_at)
        .no_later_than(until)
        .no_later_than(due)
        .no_later_than(fewer_at)
    )


def _starting_draft(observed: Observed, gang: Gang) -> StatusDraft:
    """Return a draft that says what the pods do, and since when all of them may start."""
    draft = StatusDraft.of(observed.job.status, counted=gang.workers)
    since = admitted_since(observed, gang)
    draft.admit(timestamp(since) if since is not None else None)
    return draft


def _refused(observed: Observed, gang: Gang) -> Outcome | None:
    """Give back what was made of a refused attempt, and wait: half a gang never holds GPUs."""
    refusal = observed.facts.refusal
    if refusal is None or refusal.attempt != gang.attempt or (observed.now >= refusal.retry_at and not gang.pods):
        return None
    made = tuple(gang.pods.values())
    if refusal.reason == Reason.NAME_CONFLICT:
        words = f"{sentence(refusal.message)} Delete or rename it, or give the job another name."
    elif refusal.reason == Reason.GANG_GIVEN_BACK:
        words = f"{refusal.message} The pods are made again at {timestamp(refusal.retry_at)}: there is nothing to do."
    else:
        words = (
            f"The API server refuses the pods; none is kept, and they are tried again: {sentence(refusal.message)} "
            "Make room in the quota, or correct spec.template or what refuses it."
        )
    draft, check_at = _starting_draft(observed, gang), max(refusal.retry_at, observed.now)
    draft.counted = None  # they are about to go
    draft.enter(Phase.REFUSED, Obstacle(reason=refusal.reason, message=words))
    return report(observed, draft, actions=delete((*made, *gang.stale)), check_at=check_at)


def _waits_for_old_pods(observed: Observed, gang: Gang) -> Outcome | None:
    if not (gang.missing and gang.old_pods_that_may_write):
        return None
    removals = delete(gang.stale)
    if removals:
        return keep_status(observed, *removals)  # how long they have is known once they are deleted
    held, look_at = waiting_for(observed, gang)
    draft = _starting_draft(observed, gang)
    draft.enter(Phase.STARTING, held)
    return report(observed, draft, check_at=look_at)


def _given_back(observed: Observed, gang: Gang) -> bool:
    """Whether the attempt's pods end because others were refused: how they end is no result.

    Those of a new try, which begins when the last of these is gone, are not being deleted.
    """
    refused = observed.attempt.phase is Phase.REFUSED
    return refused and any(pod.deleted_at is not None for pod in gang.pods.values())


def _steady(observed: Observed, held: Obstacle | None) -> Obstacle | None:
    """Keep the words of an obstacle that the kubelet keeps rephrasing."""
    before = observed.attempt.obstacle
    if held is not None and held.reason == Reason.IMAGE_PULL_FAILED and before is not None:
        return before if before.reason == held.reason else held
    return held


def _report_image(observed: Observed, draft: StatusDraft) -> None:
    """Write what rank 0's agent has seen of the image."""
    said, declared = observed.facts.agent, observed.job.spec.deepspeed_version
    if said is None:
        return
    warnings = [warning("spec.training", Code.POD_WARNING, words) for words in said.warnings]
    found = said.deepspeed_version
    if declared is not None and found not in {None, declared} and not is_of_another_run(observed):
        words = f"the image has DeepSpeed {found}, the job declares {declared}"
        fix = f"Write {found}, or use another image."
        warnings.append(warning("spec.deepspeedVersion", Code.VERSION_DIFFERS, words, fix))
    if found is not None:
        draft.found_version(found)
    draft.findings.add(*warnings)
