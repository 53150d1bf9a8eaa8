"""A DeepSpeedJob → its report, by the very function with which the operator accepts it."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

from deepspeed_operator.api.finding import Code, error
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import API_VERSION, KIND
from deepspeed_operator.api.status import Finding
from deepspeed_operator.api.untyped import Json, object_at, present
from deepspeed_operator.cli.config_maps import Found, find, not_in_files
from deepspeed_operator.cli.explanation import explained
from deepspeed_operator.cli.job_schema import schema_findings
from deepspeed_operator.cli.report import Options, Placed, Report, gravest_first, placed, problems
from deepspeed_operator.cli.sources import Content, Item, values
from deepspeed_operator.job.image import declared_version
from deepspeed_operator.job.installation import AGENT_ROOM, Installation
from deepspeed_operator.job.template import pod_template
from deepspeed_operator.lint.pod_fields import field_findings
from deepspeed_operator.reconcile.admission.judge import Judgement, judge
from deepspeed_operator.reconcile.observe.observed import ConfigMapContent, Facts, Observed, content_of

# The DeepSpeed of this release's worker image, in which jobs without an image run.
WORKER_DEEPSPEED: Final = "0.19.8"
_WORKER_IMAGE: Final = "the operator's worker image"
_NOW: Final = datetime(2000, 1, 1, tzinfo=UTC)  # nothing that is judged here depends on it
# With one of these wrong, world or configuration are not what was meant, and more words would mislead.
_DECISIVE: Final = frozenset({"", "nodes", "slotsPerNode", "template", "dsConfig", "dsConfigFrom"})
_FREE: Final = frozenset({"dsConfig", "template"})


# What this release installs; instead of the agent, which takes long to make, the room that it may take.
RELEASED: Final = Installation(b64encode(bytes(AGENT_ROOM)).decode(), _WORKER_IMAGE, WORKER_DEEPSPEED)


@dataclass(frozen=True, slots=True)
class Judged:
    """A job with its report; without job and verdict where the job is too wrong."""

    report: Report
    job: DeepSpeedJob | None = None
    verdict: Judgement | None = None


def judged_job(item: Item, contents: list[Content], options: Options) -> Report:
    """Return the report on a job; `contents` are the files that may hold its ConfigMap."""
    return judge_job(item, contents, options, RELEASED).report


def judge_job(item: Item, contents: list[Content], options: Options, installation: Installation) -> Judged:
    """Judge a job; `contents` are the files that may hold its ConfigMap."""
    written = _with_options(values(item.root), options)
    findings = [*_type_findings(written), *schema_findings(written)]
    job = _job(written, findings)
    name = object_at(written, "metadata").get("name")
    name = name if isinstance(name, str) else None
    if job is None:
        everything = gravest_first([*problems(item), *(placed(item, finding) for finding in findings)])
        return Judged(Report(item, name, None, None, None, options.accelerator, everything))
    found = find(job, contents)
    if job.spec.ds_config_from is not None and found is None:
        findings.append(not_in_files(job))
        job = job.model_copy(update={"spec": job.spec.model_copy(update={"ds_config_from": None})})
    verdict = _verdict(job, found, installation, options.accelerator)
    findings += [*verdict.errors, *verdict.findings, *field_findings(pod_template(job.spec))]
    version = declared_version(job.spec, installation)
    if options.explain and verdict.configuration is not None:
        where = "spec.dsConfig" if found is None else "spec.dsConfigFrom"
        findings += explained(verdict.configuration.values, version, where)
    within: list[Placed] = []
    if found is not None:
        within, findings = found.placed(findings)
    everything = gravest_first([*problems(item), *within, *(placed(item, finding) for finding in findings)])
    report = Report(item, name, verdict.world, verdict.batch, version, verdict.accelerator, everything)
    return Judged(report, job, verdict)


def _verdict(job: DeepSpeedJob, found: Found | None, installation: Installation, accelerator: str | None) -> Judgement:
    maps: dict[str, ConfigMapContent] = {}
    if found is not None and job.spec.ds_config_from is not None:
        maps[job.spec.ds_config_from.config_map] = content_of(found.data, job.spec.ds_config_from.key, _NOW)
    if job.spec.training.files is not None:  # it is there, as far as anybody can tell without a cluster
        maps.setdefault(job.spec.training.files.config_map, content_of({}, None, _NOW))
    # What it asks is among the facts.
    return judge(Observed(job, (), Facts(config_maps=maps), _NOW), installation, accelerator=accelerator)


def _with_options(written: Json, options: Options) -> Json:
    spec = written.get("spec")
    if not isinstance(spec, dict):
        return written
    given = {"nodes": options.nodes, "slotsPerNode": options.slots, "deepspeedVersion": options.version}
    changed = {**cast(Json, spec), **present(given)}
    degrees = present(asdict(options.parallelism))
    if degrees:
        changed["parallelism"] = {**object_at(changed, "parallelism"), **degrees}
    training = present({"launcher": options.launcher, "python": options.python})
    if training:
        changed["training"] = {**object_at(changed, "training"), **training}
    return {**written, "spec": changed}


def _type_findings(written: Mapping[str, Any]) -> list[Finding]:
    return [
        error(field, Code.WRONG_KIND, "is not that of a DeepSpeedJob.", f"Write {field}: {value}.")
        for field, value in (("apiVersion", API_VERSION), ("kind", KIND))
        if written.get(field) != value
    ]


def _job(written: Mapping[str, Any], findings: Iterable[Finding]) -> DeepSpeedJob | None:
    """Return the job without the fields that are wrong, so that the rest is judged, too; None if that is no use."""
    wrong = {_field_of_spec(finding.path) for finding in findings if finding.path.startswith("spec")}
    if wrong & _DECISIVE:
        return None
    metadata = {key: value for key, value in object_at(written, "metadata").items() if isinstance(value, str)}
    spec = {field: value for field, value in object_at(written, "spec").items() if field not in wrong}
    spec.setdefault("training", {"script": "train.py"})
    # Of what it has a schema for, the API server drops each null.
    kept = {field: value if field in _FREE else _pruned(value) for field, value in present(spec).items()}
    named = {"name": metadata.get("name", "unnamed"), "namespace": metadata.get("namespace", "default")}
    return DeepSpeedJob.model_validate({"metadata": named, "spec": kept})


def _pruned(value: object) -> object:
    return present(cast(Json, value)) if isinstance(value, dict) else value


def _field_of_spec(path: str) -> str:
    return path.removeprefix("spec").removeprefix(".").partition(".")[0].partition("[")[0]
