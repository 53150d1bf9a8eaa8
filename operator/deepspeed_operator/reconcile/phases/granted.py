"""Partial admission: a queue may admit an elastic run with fewer pods than it asks for, but no fewer than it can use.

An attempt has the largest size that the grant allows; what is left of the grant is given back. The quota stays over
restarts in place and replaced pods. An attempt that follows asks for all nodes again, in the place that the Workload
has in its queue.
"""

from deepspeed_operator.api.attempt_status import Obstacle
from deepspeed_operator.api.elastic import ElasticSize
from deepspeed_operator.reconcile.observe.known_workload import queue_of
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.workload_view import WorkloadView
from deepspeed_operator.reconcile.phases.beginning import words_of_size
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.queue_words import unavailable


def asks_again(observed: Observed, view: WorkloadView) -> bool:
    """Whether the quota is that of an attempt before, for fewer nodes than the one that waits wants."""
    queue = queue_of(observed)
    if queue.granted is None or queue.prebuilt or not view.admitted:
        return False
    # Kueue may have given it anew before this process saw that it had none.
    reserved = view.condition("QuotaReserved") or {}
    before = reserved.get("lastTransitionTime", "") < observed.attempt.start_time
    return before and view.granted < observed.run.world.nodes


def has_surplus(observed: Observed, view: WorkloadView) -> bool:
    """Whether the quota is for more nodes than the attempt, which has fewer than all, uses."""
    queue = queue_of(observed)
    partly = queue.granted is not None and not queue.prebuilt
    return partly and view.admitted and view.granted > observed.run.world.nodes


def size_granted(observed: Observed, view: WorkloadView) -> ElasticSize | Obstacle | None:
    """Return the size that the attempt has by its grant, or why it has none; None: that which it begins with."""
    run, granted = observed.run, view.granted
    if granted >= run.world.nodes:
        return None
    sizes = run.elastic.sizes if run.elastic is not None else []
    fitting = [each for each in sizes if each.nodes <= granted]
    if fitting:
        return max(fitting, key=lambda each: each.nodes)
    fewest = sizes[0].nodes if sizes else run.world.nodes
    words = f"Workload {view.name} is admitted with {granted} pods, and the run needs {fewest} at least: "
    return unavailable(queue_of(observed), f"{words}delete the Workload, or let it ask for as many")


def take(observed: Observed, draft: StatusDraft, view: WorkloadView, size: ElasticSize | None) -> None:
    """Say with how many nodes the attempt begins; None as the size: as many as it was begun with."""
    run, queue = observed.run, queue_of(observed)
    if size is not None:
        draft.resize(size)
        assert draft.run is not None, "a run waits in the queue"
        why = f"Kueue has admitted {view.granted} of the {run.all_nodes} that it asks for"
        draft.explain_size(words_of_size(draft.run, size, why))
    nodes = size.nodes if size is not None else run.world.nodes
    draft.queue = queue.model_copy(update={"granted": view.granted if nodes < run.all_nodes else None})
