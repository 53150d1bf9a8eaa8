"""What a job's queue is told: that the ranks run, that evicted pods have gone, how the run has ended.

An evicted Workload keeps its quota until it is given back, and the job does that when its last pod has ended: nobody
else gets the GPUs of ranks that still save.
"""

from dataclasses import replace
from typing import Final

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.queueing import QueueStatus
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.reconcile.actions import DeleteWorkload, OfQueue, Outcome, PatchWorkload
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.known_workload import TRY_AGAIN, known_workload, queue_of
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.unanswered import meanwhile
from deepspeed_operator.reconcile.observe.workload_view import WorkloadView
from deepspeed_operator.reconcile.phases.granted import asks_again, has_surplus
from deepspeed_operator.reconcile.report.outcome import timestamp

_PODS_READY: Final = "PodsReady"
# After these Kueue queues a Workload at once; after the others it says itself when.
_ASKS_AGAIN: Final = "Restarted"
_REQUEUED_AT_ONCE: Final = frozenset({"Preempted", "NodeFailures", _ASKS_AGAIN})
_MOST_WORDS: Final = 1024
_GIVING_BACK: Final = frozenset({Phase.QUEUED, Phase.BACKING_OFF, Phase.SUSPENDED})
_WITH_PODS: Final = frozenset({Phase.STARTING, Phase.REFUSED, Phase.RUNNING, Phase.REPLACING})
_NOT_YET_READY: Final = frozenset({Phase.STARTING, Phase.REFUSED, Phase.REPLACING, Phase.BACKING_OFF})


def with_queue(observed: Observed, gang: Gang, outcome: Outcome) -> Outcome:
    """Return the outcome with what is to be told to the queue of the job, if it has one; raise Unanswered to ask it.

    What the outcome says is written first: while that is about to change, nothing is told.
    """
    status, before = outcome.status, observed.job.status
    queue, attempt = before.queue, status.attempt
    name = queue.held_workload if queue is not None else None
    if queue is None or name is None or status.queue != queue:
        return outcome
    if attempt is None or (attempt.number, attempt.phase) != (observed.attempt.number, observed.attempt.phase):
        return outcome
    with meanwhile(outcome):
        answer = known_workload(observed)
    last = observed.facts.workload
    for each in (answer, last) if last is not None and last.name == name else (answer,):
        again = each.read_at + TRY_AGAIN
        if each.problem is not None and observed.now < again:  # a watch may go on while writes are refused
            return outcome.no_later_than(again)
    view, over = answer.view, _is_former(queue) or attempt.phase in {Phase.ENDED, Phase.SUSPENDED}
    if view is None or observed.job.metadata.uid not in view.owners or view.finished:
        if not over:
            return outcome
        told_last = "workload" if queue.former is None else "former"
        return replace(outcome, status=status.model_copy(update={"queue": queue.model_copy(update={told_last: None})}))
    told = None if view.leaving else _told(observed, gang, view)
    if told is None:
        return outcome
    return replace(outcome, actions=(*outcome.actions, told)).no_later_than(observed.now)


def _is_former(queue: QueueStatus) -> bool:
    """Whether the Workload is that of a run before: before a run without a queue older releases wrote no other name."""
    return queue.former is not None or queue.name is None


def _told(observed: Observed, gang: Gang, view: WorkloadView) -> OfQueue | None:
    queue, phase = queue_of(observed), observed.attempt.phase
    own = [pod for pod in observed.pods if pod.job_uid == observed.job.metadata.uid]
    may_write = any(not pod.released for pod in own)
    if _is_former(queue):
        return None if gang.old_pods_that_may_write else _give_up(observed, view)
    if phase is Phase.ENDED:
        return None if may_write else _finish(observed, view)
    if phase is Phase.SUSPENDED and not queue.prebuilt and view.is_ours:
        return None if may_write else DeleteWorkload(view.name, view.uid)
    why = _why_given_back(observed, view)
    if why is not None:
        return None if may_write else _give_back(observed, view, *why)
    if phase in _WITH_PODS and has_surplus(observed, view):
        unused = {"name": view.pod_set, "count": view.asked - observed.run.world.nodes}
        return None if gang.old_pods_that_may_write else _patch(view, reclaimablePods=[unused])
    if phase is Phase.RUNNING and not view.holds(_PODS_READY):
        ready = _condition(observed, view, _PODS_READY, ("True", "Started", "all ranks run"))
        return _patch(view, ready)
    if phase in _NOT_YET_READY and view.admitted and view.holds(_PODS_READY):
        again = "False", "WaitForRecovery", "ranks are to start again"
        return _patch(view, _condition(observed, view, _PODS_READY, again))
    return None


def _finish(observed: Observed, view: WorkloadView) -> OfQueue:
    failure = observed.job.status.failure
    reason, words = ("Succeeded", "the job is complete") if failure is None else ("Failed", failure.message)
    return _patch(view, _condition(observed, view, "Finished", ("True", reason, words.partition("\n")[0])))


def _give_up(observed: Observed, view: WorkloadView) -> OfQueue:
    """Return what ends a Workload that stands for the job no more."""
    if view.is_ours:
        return DeleteWorkload(view.name, view.uid)
    words = "the DeepSpeedJob goes on without it"
    return _patch(view, _condition(observed, view, "Finished", ("True", "OutOfSync", words)))


def _why_given_back(observed: Observed, view: WorkloadView) -> tuple[str, str] | None:
    """Return the reason and the words with which the quota is given back; None: it is kept."""
    phase = observed.attempt.phase
    if phase in _GIVING_BACK and view.evicted and view.reserved:
        evicted = view.condition("Evicted") or {}
        return str(evicted.get("reason", "Evicted")), str(evicted.get("message", ""))
    if phase is Phase.QUEUED and asks_again(observed, view):
        return _ASKS_AGAIN, f"it asks for all {observed.run.all_nodes} pods again"
    return None


def _give_back(observed: Observed, view: WorkloadView, reason: str, words: str) -> OfQueue:
    """Return what frees the quota, as Kueue's own jobs do it."""
    at_once = "True" if reason in _REQUEUED_AT_ONCE else "False"
    news = (
        _condition(observed, view, "QuotaReserved", ("False", "Pending", words)),
        _condition(observed, view, "Admitted", ("False", "NoReservation", "The workload has no reservation")),
        _condition(observed, view, "Requeued", (at_once, reason, words)),
        _condition(observed, view, _PODS_READY, ("False", "WaitForStart", "its pods have ended")),
    )
    return _patch(view, *news, admission=None, reclaimablePods=None)


def _patch(view: WorkloadView, *news: Json, **status: list[Json] | None) -> PatchWorkload:
    kinds = {each["type"] for each in news}
    others = [each for each in view.conditions if each.get("type") not in kinds]
    return PatchWorkload(view.name, view.resource_version, {"status": {**status, "conditions": [*others, *news]}})


def _condition(observed: Observed, view: WorkloadView, kind: str, said: tuple[str, str, str]) -> Json:
    """Return the condition that says so: its status, reason and message."""
    (status, reason, message), before = said, view.condition(kind)
    flips = before is None or before.get("status") != status
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message[:_MOST_WORDS],
        "lastTransitionTime": timestamp(observed.now) if flips or before is None else before["lastTransitionTime"],
    }
