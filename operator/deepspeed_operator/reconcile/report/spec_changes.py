"""What was changed in spec that the recorded run does not take: a finding, and one event."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from deepspeed_operator.api.attempt_status import AttemptStatus, Phase
from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding
from deepspeed_operator.job.digest import config_digest, short_digest, template_digest
from deepspeed_operator.reconcile.actions import JobEvent
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.report.draft import StatusDraft

CONFIG: Final = warning(
    "spec.dsConfig",
    Code.CHANGE_NOT_APPLIED,
    "changed since this run was accepted; the run keeps the configuration it began with",
    "Change spec.runId to begin a run with the new configuration.",
)
TEMPLATE: Final = warning(
    "spec.template",
    Code.CHANGE_NOT_APPLIED,
    "changed since this attempt's pods were made, which stay as they are; the next attempt takes it",
    "Suspend the job and resume it, or change spec.runId to begin a run with the new template.",
)
_FACTS: Final = {
    field: warning(
        f"spec.{field}",
        Code.CHANGE_NOT_APPLIED,
        "changed since this run was accepted: whether it fits and may run was judged by what it said then",
        "Change spec.runId to begin a run that is judged by what it says now.",
    )
    for field in ("model", "gpuMemory", "admission")
}
_SINCE: Final = "changed since this run"
# What a run is not made of; dsConfig has the run's own digest, by which its later attempts find it.
_NOT_OF_A_RUN: Final = {"run_id", "suspend", "lifecycle", "ds_config"}


def spec_digests(spec: DeepSpeedJobSpec) -> dict[str, str]:
    """Return a digest of each field that a run is made from, by which a later spec is known to be another one.

    Defaults, which the API server writes into a spec as its CRD has them, make no difference.
    """
    return _digests(spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=_NOT_OF_A_RUN))


def _digests(fields: Mapping[str, object]) -> dict[str, str]:
    return {field: short_digest({field: value}) for field, value in fields.items()}


def unrun_changes(findings: Sequence[Finding]) -> str:
    """Return what is to be said of a finished run whose spec has changed since; nothing where it has not."""
    paths = [each.path for each in findings if each.message == _SINCE]
    return f" {' and '.join(paths)} {_SINCE}: set a new spec.runId to run it." if paths else ""


def is_of_another_run(observed: Observed) -> bool:
    """Whether spec tells nothing of the accepted run: it asks for another one, with other fields than dsConfig."""
    return observed.asks_for_another_run and bool(_changed_fields(observed))


def template_changed(observed: Observed) -> bool:
    """Whether spec.template is not as it was when the run was accepted."""
    return "template" in _changed_fields(observed)


def report_changes(observed: Observed, draft: StatusDraft) -> None:
    """Add to the draft the findings on what has changed in spec, and events for the new ones."""
    job, status = observed.job, observed.job.status
    finished = draft.attempt is not None and draft.attempt.phase is Phase.ENDED
    unchanged = status.observed_generation == job.metadata.generation
    if unchanged and not finished and status.attempt is not None and status.attempt.phase is Phase.RUNNING:
        return  # all pods are there, and spec is as it was when this was last asked
    now: list[Finding] = []
    if status.run is not None and status.run.id == job.spec.run_id:
        now += _changed_since(observed) if finished else _changed(observed, draft.attempt)
    draft.findings.replace({Code.CHANGE_NOT_APPLIED}, *now)
    draft.events += [
        JobEvent("Warning", Reason.CHANGE_NOT_APPLIED, f"{each}") for each in now if not draft.findings.knew(each)
    ]


def _changed(observed: Observed, attempt: AttemptStatus | None) -> Iterator[Finding]:
    job, judged = observed.job, observed.run.spec_digests
    if _config_changed(observed):
        yield CONFIG
    if judged is not None:
        facts = {"model", "gpu_memory", "admission"}
        spec = job.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=facts)
        now = _digests(spec)
        yield from (said for field, said in _FACTS.items() if now.get(field) != judged.get(field))
    number = attempt.number if attempt is not None else None
    pods = [pod for pod in observed.pods if (pod.job_uid, pod.attempt) == (job.metadata.uid, number)]
    made_of = {pod.template for pod in pods if pod.template is not None and pod.deleted_at is None}
    if made_of and made_of != {template_digest(job)}:
        yield TEMPLATE


def _changed_since(observed: Observed) -> Iterator[Finding]:
    """Yield what another run would take that the finished one has not."""
    fields = [*(["dsConfig"] if _config_changed(observed) else []), *_changed_fields(observed)]
    for field in fields:
        fix = "Set a new spec.runId to run it."
        yield warning(f"spec.{field}", Code.CHANGE_NOT_APPLIED, _SINCE, fix)


def _config_changed(observed: Observed) -> bool:
    spec = observed.job.spec
    if spec.ds_config_from is not None:
        return False
    digest = config_digest(spec.ds_config) if spec.ds_config is not None else None
    return digest != observed.run.config_digest


def _changed_fields(observed: Observed) -> list[str]:
    """Return the fields of spec that are not as they were when the run was accepted, but for dsConfig."""
    then = observed.run.spec_digests
    if then is None or "training" not in then:  # accepted by an earlier version of the operator
        return []
    now = spec_digests(observed.job.spec)
    return [field for field in sorted({*then, *now}) if then.get(field) != now.get(field)]
