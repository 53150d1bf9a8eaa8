"""What is kept of a run that has ended, and for how long.

While spec asks for another run, which is refused, its lifecycle is not that of the run that has ended: all stays.
"""

from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.lifecycle import CleanPodPolicy, Lifecycle
from deepspeed_operator.api.names import content_name
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.reconcile.actions import DeleteChildren, Outcome
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import moment
from deepspeed_operator.reconcile.phases.removal import delete
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.outcome import report, timestamp
from deepspeed_operator.reconcile.report.verdict import sentence
from deepspeed_operator.render.endpoints import slice_names

_PATH: Final = "spec.lifecycle.ttlSecondsAfterFinished"


def deletes_finished_pods(observed: Observed) -> bool:
    """Whether no pod of the ended run is to stay."""
    return _lifecycle(observed).clean_pod_policy is CleanPodPolicy.DELETE_ALL


def kept_until(observed: Observed) -> datetime | None:
    """Return until when the children of the ended run are kept; None for as long as the job is, or if they are gone."""
    ttl, run = _lifecycle(observed).ttl_seconds_after_finished, observed.run
    if ttl is None or run.completion_time is None or run.cleanup_time is not None:
        return None
    return moment(run.completion_time) + timedelta(seconds=ttl)


def clean_up(observed: Observed, gang: Gang, installation: Installation) -> Outcome:
    """Delete the children of the ended run, and say so once they are: until then it is done again.

    Where the operator may not, it says that, and waits before it tries again.
    """
    removals, kept = delete((*gang.pods.values(), *gang.kept, *gang.stale)), observed.facts.kept_children
    draft = StatusDraft.of(observed.job.status)
    if observed.facts.childless == gang.attempt and not removals:
        draft.findings.replace({Code.CHILDREN_KEPT})
        draft.clean_up_run(timestamp(observed.now))
        return report(observed, draft)
    if kept is not None and kept.attempt == gang.attempt and observed.now < kept.retry_at:
        message = f"what the run has left cannot be deleted: {sentence(kept.message)} It is tried again."
        fix = "Give the operator the right to delete ConfigMaps, as its chart does; else they go with the job."
        draft.findings.replace({Code.CHILDREN_KEPT}, warning(_PATH, Code.CHILDREN_KEPT, message, fix))
        return report(observed, draft, actions=removals, check_at=kept.retry_at)
    name, uid = gang.job, observed.job.metadata.uid
    first = observed.job.status.oldest_config_map or 1
    config_maps = tuple(content_name(name, uid, attempt) for attempt in range(first, gang.attempt + 1))
    rest = DeleteChildren(gang.attempt, config_maps, name, slice_names(name, gang.nodes), installation.gangs)
    return Outcome(observed.job.status, (*removals, rest), (), observed.now)


def _lifecycle(observed: Observed) -> Lifecycle:
    given = None if observed.asks_for_another_run else observed.job.spec.lifecycle
    return given or Lifecycle()
