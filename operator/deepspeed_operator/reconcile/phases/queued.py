"""An attempt that waits in a queue: one Workload stands for all its pods, none of which is made before it is admitted.

Pods of before may still end meanwhile. What the queue is told of them is in quota.py.
"""

from dataclasses import replace
from datetime import datetime

from deepspeed_operator.api.attempt_status import Obstacle, Phase
from deepspeed_operator.api.queueing import KUEUE
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.job.template import pod_template
from deepspeed_operator.reconcile.actions import (
    CreateWorkload,
    DeleteWorkload,
    OfQueue,
    Outcome,
    PatchWorkload,
    ReadOfQueue,
)
from deepspeed_operator.reconcile.failure.active_deadline import active_deadline, deadline_exceeded
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.known_workload import REREAD, TRY_AGAIN, known_workload, lookups, queue_of
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.unanswered import meanwhile
from deepspeed_operator.reconcile.observe.workload_view import WorkloadView, placement_of
from deepspeed_operator.reconcile.phases.ending import fail_run
from deepspeed_operator.reconcile.phases.granted import asks_again, size_granted, take
from deepspeed_operator.reconcile.phases.removal import delete
from deepspeed_operator.reconcile.phases.starting import made_wrong, of_another_run
from deepspeed_operator.reconcile.phases.waiting import waiting_for
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.outcome import COUNTERS_EVERY, keep_status, report, timestamp
from deepspeed_operator.reconcile.report.queue_words import unavailable, waiting
from deepspeed_operator.reconcile.report.spec_changes import is_of_another_run
from deepspeed_operator.render.kueue_workload import adoption, workload, workload_content


def wait_in_queue(observed: Observed, gang: Gang, installation: Installation) -> Outcome:
    """Decide about an attempt whose turn has not come; raise Unanswered to ask the queue."""
    if observed.job.spec.suspend:
        draft = StatusDraft.of(observed.job.status, counted=gang.workers)
        draft.enter(Phase.STOPPING)
        return report(observed, draft, check_at=observed.now)
    until = active_deadline(observed)
    if until is not None and observed.now >= until:
        return fail_run(observed, gang, deadline_exceeded(observed))
    removals = delete(gang.stale)
    with meanwhile(keep_status(observed, *removals)):
        outcome = _at_the_queue(observed, gang, installation)
    last = observed.facts.workload
    if observed.workload is None and (last is None or last.problem is None):  # no watch tells of it
        outcome = outcome.no_later_than(observed.now + REREAD)
    return replace(outcome, actions=(*removals, *outcome.actions))


def _at_the_queue(observed: Observed, gang: Gang, installation: Installation) -> Outcome:
    answer, queue = known_workload(observed), queue_of(observed)
    if answer.problem is not None:
        return _held(observed, gang, unavailable(queue, answer.problem), check_at=observed.now + TRY_AGAIN)
    view = answer.view
    if queue.former is not None:
        return _while_given_back(observed, gang)
    if queue.granted is not None and (view is None or not view.reserved):
        draft = StatusDraft.of(observed.job.status, counted=gang.workers)
        draft.queue = queue.model_copy(update={"granted": None})
        return report(observed, draft, check_at=observed.now)
    if view is None:
        needed = _missing(observed, installation)
        if isinstance(needed, Obstacle):
            return _held(observed, gang, needed, check_at=observed.now + TRY_AGAIN)
        before = observed.attempt.obstacle
        # What kept it from being made may do so again.
        stays = before is not None and before.reason == Reason.QUEUE_UNAVAILABLE
        return _held(observed, gang, before if stays and before else waiting(queue, None), needed)
    return _with_workload(observed, gang, view)


def _with_workload(observed: Observed, gang: Gang, view: WorkloadView) -> Outcome:
    queue = queue_of(observed)
    if view.leaving:
        return _held(observed, gang, waiting(queue, None))
    if queue.prebuilt and not view.owners:
        patch = {"metadata": adoption(observed.job)}
        adopt = PatchWorkload(view.name, view.resource_version, patch, of_status=False)
        return _held(observed, gang, waiting(queue, view), adopt)
    if (useless := _useless(observed, view)) is not None:
        return _held(observed, gang, useless, check_at=observed.now + TRY_AGAIN)
    if view.finished or _is_of_something_else(observed, view):
        if gang.old_pods_that_may_write:
            return _waits_for_old_pods(observed, gang)
        return _held(observed, gang, waiting(queue, None), DeleteWorkload(view.name, view.uid))
    if view.admitted:
        return _begin(observed, gang, view)
    if view.evicted and gang.old_pods_that_may_write:
        return _waits_for_old_pods(observed, gang)
    return _held(observed, gang, waiting(queue, view))


def _begin(observed: Observed, gang: Gang, view: WorkloadView) -> Outcome:
    """Go on with the pods, where their quota is, with as many as it is for."""
    if asks_again(observed, view):
        return _while_given_back(observed, gang)
    size = size_granted(observed, view)
    if isinstance(size, Obstacle):
        return _held(observed, gang, size, check_at=observed.now + TRY_AGAIN)
    newer_than = observed.now - REREAD
    flavors = lookups(observed, *(ReadOfQueue("ResourceFlavor", name, newer_than) for name in view.flavors))
    problem = next((each.problem for each in flavors.values() if each.problem is not None), None)
    if problem is not None:
        held = unavailable(queue_of(observed), problem)
        return _held(observed, gang, held, check_at=observed.now + TRY_AGAIN)
    draft = StatusDraft.of(observed.job.status, counted=gang.workers)
    draft.place(placement_of(view, {name: each.content or {} for name, each in flavors.items()}))
    take(observed, draft, view, size)
    draft.admit(None if gang.old_pods_that_may_write else timestamp(observed.now))
    return report(observed, draft, check_at=observed.now)


def _missing(observed: Observed, installation: Installation) -> OfQueue | Obstacle:
    """Return what makes the Workload, or why it cannot be made."""
    queue = queue_of(observed)
    if queue.prebuilt:
        words = f"label kueue.x-k8s.io/prebuilt-workload-name names Workload {queue.workload}, which is not there: "
        return unavailable(queue, f"{words}whoever dispatches the job has yet to make it; or remove the label")
    if is_of_another_run(observed):
        return of_another_run(observed)
    wrong = made_wrong(observed, installation)
    if wrong is not None:
        return wrong
    priority = _priority(observed)
    if isinstance(priority, Obstacle):
        return priority
    return CreateWorkload(workload(observed.job, observed.run, queue, installation, priority=priority))


def _priority(observed: Observed) -> tuple[str, str, int] | Obstacle | None:
    """Return the group and name of the job's priority class, with its value; None if it names none."""
    queue, newer_than = queue_of(observed), observed.now - REREAD
    of_pods = pod_template(observed.job.spec).pod.get("priorityClassName")
    if queue.priority_class is not None:
        question = ReadOfQueue("WorkloadPriorityClass", queue.priority_class, newer_than)
    elif isinstance(of_pods, str) and of_pods:
        question = ReadOfQueue("PriorityClass", of_pods, newer_than)
    else:
        return None
    found = lookups(observed, question)[question.name]
    if found.problem is not None or found.content is None:
        return unavailable(queue, found.problem or f"{question.kind} {question.name} is not there")
    group = KUEUE if question.kind == "WorkloadPriorityClass" else "scheduling.k8s.io"
    return group, question.name, int(found.content.get("value", 0))


def _is_of_something_else(observed: Observed, view: WorkloadView) -> bool:
    """Whether the Workload was made for another run, or of another template."""
    queue = queue_of(observed)
    if queue.prebuilt or is_of_another_run(observed):
        return False
    return view.content != workload_content(observed.job, observed.run, queue)


def _useless(observed: Observed, view: WorkloadView) -> Obstacle | None:
    """Return why the Workload, which is not the operator's to delete, lets no run of this job begin."""
    queue = queue_of(observed)
    if observed.job.metadata.uid not in view.owners:
        words = f"Workload {view.name} exists and is not owned by this job: delete it, or give the job another name."
        return Obstacle(reason=Reason.NAME_CONFLICT, message=words)
    if not queue.prebuilt and not view.is_ours:
        words = f"Workload {view.name} has the name of the job's own, and somebody else made it: delete it, or name it "
        return Obstacle(reason=Reason.NAME_CONFLICT, message=f"{words}in label kueue.x-k8s.io/prebuilt-workload-name.")
    if queue.prebuilt and view.finished:
        words = f"Workload {view.name}, which label kueue.x-k8s.io/prebuilt-workload-name names, is finished: "
        return unavailable(queue, f"{words}name another one, or remove the label")
    return None


def _while_given_back(observed: Observed, gang: Gang) -> Outcome:
    """Wait while quota of before is given back, which it is when its pods have ended."""
    old_pods = gang.old_pods_that_may_write
    return _waits_for_old_pods(observed, gang) if old_pods else _held(observed, gang, waiting(queue_of(observed), None))


def _waits_for_old_pods(observed: Observed, gang: Gang) -> Outcome:
    held, look_at = waiting_for(observed, gang)
    return _held(observed, gang, held, check_at=look_at)


def _held(
    observed: Observed, gang: Gang, held: Obstacle, *actions: OfQueue, check_at: datetime | None = None
) -> Outcome:
    """Say what keeps the attempt in the queue: its first words at once, other words alone once a minute."""
    before, written = observed.attempt.obstacle, observed.facts.status_written_at
    if before is not None and written is not None and before.reason == held.reason == Reason.QUEUED:
        due = written + COUNTERS_EVERY
        if before not in (held, waiting(queue_of(observed), None)) and observed.now < due:
            held, check_at = before, due if check_at is None else min(check_at, due)
    draft = StatusDraft.of(observed.job.status, counted=gang.workers)
    draft.enter(Phase.QUEUED, held)
    return report(observed, draft, actions=actions, check_at=check_at)
