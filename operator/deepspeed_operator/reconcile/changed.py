"""What was changed in spec while a run goes on that does not take it: a finding, and one event."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from deepspeed_operator.api.status import Finding, Level
from deepspeed_operator.plan.digest import config_digest
from deepspeed_operator.reconcile.actions import JobEvent
from deepspeed_operator.reconcile.observed import Observed
from deepspeed_operator.render.identity import template_digest

CONFIG: Final = Finding(
    level=Level.WARNING,
    path="spec.dsConfig",
    message="changed since this run was accepted; the run keeps the configuration it began with",
    fix="Change spec.runId to begin a run with the new configuration.",
)
TEMPLATE: Final = Finding(
    level=Level.WARNING,
    path="spec.template",
    message="changed since this attempt's pods were made, which stay as they are; the next attempt takes it",
    fix="Suspend the job and resume it, or change spec.runId to begin a run with the new template.",
)


def with_changes(
    observed: Observed, findings: Sequence[Finding], changes: Mapping[str, Any]
) -> tuple[list[Finding], list[JobEvent]]:
    """Return the findings with those on what has changed now, and events for the new ones."""
    now = [*_changed(observed, changes)]
    kept = [each for each in findings if each not in (CONFIG, TEMPLATE)]
    known = observed.job.status.findings
    events = [JobEvent("Warning", "ChangeNotApplied", f"{each}") for each in now if each not in known]
    return [*kept, *now], events


def _changed(observed: Observed, changes: Mapping[str, Any]) -> Sequence[Finding]:
    job, status = observed.job, observed.job.status
    if status.run_id != job.spec.run_id:
        return []
    found: list[Finding] = []
    config = job.spec.ds_config
    if config is not None and status.config_digest is not None and config_digest(config) != status.config_digest:
        found.append(CONFIG)
    attempt = changes.get("attempt", status.attempt)
    pods = [pod for pod in observed.pods if (pod.job_uid, pod.attempt) == (job.metadata.uid, attempt)]
    made_of = {pod.template for pod in pods if pod.template is not None and pod.deleted_at is None}
    if made_of and made_of != {template_digest(job)}:
        found.append(TEMPLATE)
    return found
