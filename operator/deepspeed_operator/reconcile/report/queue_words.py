"""What is said of a job that waits in a queue, or has lost its turn."""

from typing import Final

from deepspeed_operator.api.attempt_status import Obstacle
from deepspeed_operator.api.queueing import QueueStatus
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.reconcile.observe.workload_view import WorkloadView
from deepspeed_operator.reconcile.report.verdict import sentence

_NO_WORDS: Final = "Kueue has not said anything of it yet"


def waiting(queue: QueueStatus, view: WorkloadView | None) -> Obstacle:
    """Return what keeps the job in its queue, in Kueue's words; None as the view where Kueue has not seen it yet."""
    where = f"Workload {queue.workload} waits in LocalQueue {queue.name}"
    hint = "No pod exists; the job begins when Kueue admits it, and spec.suspend takes it out of the queue."
    return Obstacle(reason=Reason.QUEUED, message=f"{where}: {sentence(_of_kueue(view))} {hint}")


def unavailable(queue: QueueStatus, problem: str) -> Obstacle:
    """Return what to say where the queue cannot be reached; `problem` says why and what to do."""
    words = f"The job asks for LocalQueue {queue.name}, and nothing was created: {sentence(problem)}"
    return Obstacle(reason=Reason.QUEUE_UNAVAILABLE, message=f"{words} It is tried again every 30 s.")


def reclaimed(queue: QueueStatus, view: WorkloadView | None) -> Obstacle:
    """Return why the job has lost its quota; None as the view where its Workload is gone."""
    if view is None:
        why = f"Workload {queue.workload} was deleted"
    else:
        said = view.condition("Evicted") or {}
        why = f"{said.get('reason')}: {said.get('message', '')}" if view.evicted else "it is not admitted any more"
    words = f"Kueue takes the job's quota back ({why.rstrip(' .:')}): its pods end with their grace to save, and it"
    return Obstacle(
        reason=Reason.QUOTA_RECLAIMED,
        message=f"{words} waits in LocalQueue {queue.name} again. There is nothing to do.",
    )


def _of_kueue(view: WorkloadView | None) -> str:
    if view is None:
        return _NO_WORDS
    if view.reserved:
        open_checks = view.condition("Admitted") or {}
        return f"its quota is reserved, and admission checks are still open {open_checks.get('message', '')}".rstrip()
    requeued = view.condition("Requeued")
    if requeued is not None and requeued.get("status") == "False":
        return f"{requeued.get('reason')}: {requeued.get('message')}"
    pending = view.condition("QuotaReserved")
    if pending is None:
        return _NO_WORDS
    reason, message = str(pending.get("reason", "")), str(pending.get("message", ""))
    return message if reason == "Pending" and message else f"{reason}: {message}"
