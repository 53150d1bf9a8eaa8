"""What was changed in spec while a run goes on that does not take it: a finding, and one event."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import ConditionType, Finding, Level
from deepspeed_operator.plan.digest import config_digest, short_digest
from deepspeed_operator.reconcile.actions import JobEvent
from deepspeed_operator.reconcile.conditions import is_true
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
_FACTS: Final = {
    field: Finding(
        level=Level.WARNING,
        path=f"spec.{field}",
        message="changed since this run was accepted: whether it fits and may run was judged by what it said then",
        fix="Change spec.runId to begin a run that is judged by what it says now.",
    )
    for field in ("model", "gpuMemory", "admission")
}
_ALL: Final = (CONFIG, TEMPLATE, *_FACTS.values())


def judged_by(spec: DeepSpeedJobSpec) -> dict[str, str]:
    """Return by what a run is known to be judged by these fields as they are now, or not to be.

    Defaults, which the API server writes into a spec as its CRD has them, make no difference.
    """
    facts = {"model", "gpu_memory", "admission"}
    said = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=facts)
    return {field: short_digest({field: value}) for field, value in said.items()}


def with_changes(
    observed: Observed, findings: Sequence[Finding], changes: Mapping[str, Any]
) -> tuple[list[Finding], list[JobEvent]]:
    """Return the findings with those on what has changed now, and events for the new ones.

    They come first: of more findings than status holds, the last are not kept, and would be announced again.
    """
    job, status = observed.job, observed.job.status
    if status.observed_generation == job.metadata.generation and is_true(status, ConditionType.RUNNING):
        return [*findings], []  # all pods are there, and spec is as it was when this was last asked
    now = [*_changed(observed, changes)] if status.run_id == job.spec.run_id else []
    kept = [each for each in findings if each not in _ALL]
    events = [JobEvent("Warning", "ChangeNotApplied", f"{each}") for each in now if each not in status.findings]
    return [*now, *kept], events


def _changed(observed: Observed, changes: Mapping[str, Any]) -> Iterator[Finding]:
    job, spec, status = observed.job, observed.job.spec, observed.job.status
    if spec.ds_config_from is None:
        digest = config_digest(spec.ds_config) if spec.ds_config is not None else None
        if digest != status.config_digest:
            yield CONFIG
    if status.judged_by is not None:
        now = judged_by(spec)
        yield from (said for field, said in _FACTS.items() if now.get(field) != status.judged_by.get(field))
    attempt = changes.get("attempt", status.attempt)
    pods = [pod for pod in observed.pods if (pod.job_uid, pod.attempt) == (job.metadata.uid, attempt)]
    made_of = {pod.template for pod in pods if pod.template is not None and pod.deleted_at is None}
    if made_of and made_of != {template_digest(job)}:
        yield TEMPLATE
