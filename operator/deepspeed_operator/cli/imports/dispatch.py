"""Files → conversions: which kind each document is, and who reads it."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, cast

from deepspeed_operator.api.untyped import Json, list_at, object_at
from deepspeed_operator.cli.imports import argo_workflow, batch_jobs, job_set, kubeflow_jobs
from deepspeed_operator.cli.imports.conversion import Conversion, GivenWorld, converted
from deepspeed_operator.cli.imports.recognition import beside, looks_templated, unknown_document, unknown_text
from deepspeed_operator.cli.imports.slurm import command_line, slurm_script
from deepspeed_operator.cli.imports.workload import Workload
from deepspeed_operator.cli.kube_yaml import parse_yaml
from deepspeed_operator.dsconfig.tree import UnreadableError, plain

_SBATCH: Final = re.compile(r"^#SBATCH\s", re.MULTILINE)
_SCRIPT: Final = re.compile(r"\A\s*#!.*\b(ba|da|k|z)?sh\b")
_SUFFIXES: Final = frozenset({".sh", ".bash", ".sbatch", ".slurm", ".job"})
_STARTS: Final = re.compile(
    r"^\s*(?:\w+=\S*\s+)*(?:\S*/)?(?:deepspeed|torchrun|accelerate\s+launch|mpirun|srun|python3?(?:\.\d+)?)\s+\S",
    re.MULTILINE,
)
_READERS: Final[dict[tuple[str, str], Callable[[Json], Workload]]] = {
    ("kubeflow.org", "PyTorchJob"): kubeflow_jobs.pytorch_job,
    ("kubeflow.org", "MPIJob"): kubeflow_jobs.mpi_job,
    ("jobset.x-k8s.io", "JobSet"): job_set.job_set,
    ("batch.volcano.sh", "Job"): batch_jobs.volcano_job,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): batch_jobs.leader_worker_set,
    ("batch", "Job"): batch_jobs.plain_job,
    ("apps", "StatefulSet"): batch_jobs.stateful_set,
    ("v1", "Pod"): batch_jobs.single_pod,
}
_NUMBERS: Final = frozenset(
    {"completions", "nprocPerNode", "numNodes", "numProcPerNode", "parallelism", "replicas"}
) | {
    "size",
    "slotsPerWorker",
    "nvidia.com/gpu",
}
_PLACEHOLDER: Final = re.compile(r"\$\{?\w+\}?|<[^<>]+>|\{\{.*\}\}|%\w+%")
_RUNTIMES: Final = frozenset({"ClusterTrainingRuntime", "TrainingRuntime"})
_WORKFLOWS: Final = frozenset({"Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow"})


@dataclass(slots=True)
class Imported:
    """What the files became: jobs, what stands beside them, and what is no job at all."""

    conversions: list[tuple[str, Conversion]] = field(default_factory=list[tuple[str, Conversion]])
    beside: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    unknown: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


@dataclass(frozen=True, slots=True)
class _Readable:
    file: str
    document: Json


def imported(texts: Iterable[tuple[str, str]], given: GivenWorld, command: str | None) -> Imported:
    """Convert what is in the files.

    `texts`: their names and texts; `command`: a command line that the file does not say.
    """
    result = Imported()
    documents: list[_Readable] = []
    for file, content in texts:
        text = content.replace("\r\n", "\n")  # a shell would not take these line ends, either: they came with a copy
        if _is_script(file, text):
            of_slurm = _SBATCH.search(text) or PurePath(file).suffix in {".sbatch", ".slurm"} or "$SLURM_" in text
            workload = slurm_script(text, _stem(file)) if of_slurm else command_line(text)
            workload.name = workload.name or _stem(file)
            result.conversions.append((file, converted(workload, given)))
            continue
        try:
            documents += [_Readable(file, document) for document in _documents(text)]
        except UnreadableError as error:
            templated = looks_templated(text) or unknown_text(text)
            result.unknown.append((file, templated if templated != unknown_text("") else f"{error.message}"))
    maps = {
        _name(each.document): _data(each.document) for each in documents if each.document.get("kind") == "ConfigMap"
    }
    runtimes = {
        _name(each.document): each.document for each in documents if str(each.document.get("kind")) in _RUNTIMES
    }
    for each in documents:
        found = list(_workloads(each.document, runtimes))
        for workload in found:
            workload.config_maps = maps
            for path, value in _placeholders(each.document):
                workload.remarks.refuse(
                    path, f"{value} is to be filled in first: envsubst < {each.file} | dsjob import -"
                )
            if command is not None:
                workload.words = ["/bin/sh", "-c", command]
            result.conversions.append((each.file, converted(workload, given)))
        if not found:
            aside = beside(each.document)
            if aside is not None and len(documents) > 1:
                result.beside.append((each.file, aside))
            else:
                result.unknown.append((each.file, unknown_document(each.document)))
    return result


def from_command(command: str, given: GivenWorld) -> Imported:
    """Convert a command line."""
    return Imported([("--command", converted(command_line(command), given))])


def _is_script(file: str, text: str) -> bool:
    if re.search(r"^(apiVersion|kind)\s*:", text, re.MULTILINE):
        return False
    named = PurePath(file).suffix in _SUFFIXES
    if re.search(r"^(import|from)\s+\w+", text, re.MULTILINE) or re.search(r"^#(PBS|BSUB)\s", text, re.MULTILINE):
        return bool(named and _SBATCH.search(text))
    return named or bool(_SBATCH.search(text) or _SCRIPT.search(text) or _STARTS.search(text))


def _documents(text: str) -> Iterator[Json]:
    for document in list(parse_yaml(text)):
        value: Any = plain(document.root)
        if value is None:
            continue
        if not isinstance(value, dict):
            raise UnreadableError(unknown_text(text))
        whole = cast(Json, value)
        if whole.get("kind") == "List":
            yield from (object_at(each) for each in list_at(whole, "items"))
        else:
            yield whole


def _workloads(document: Json, runtimes: dict[str, Json]) -> Iterator[Workload]:
    group, kind = str(document.get("apiVersion")).partition("/")[0], str(document.get("kind"))
    if (group, kind) == ("trainer.kubeflow.org", "TrainJob"):
        yield job_set.train_job(document, runtimes)
    elif group == "argoproj.io" and kind in _WORKFLOWS:
        yield from _steps(document, runtimes)
    elif document.get("apiVersion") != "kubeflow.org/v1alpha1":
        reader = _READERS.get((group, kind))
        if reader is not None:
            yield reader(document)


def _steps(workflow: Json, runtimes: dict[str, Json]) -> Iterator[Workload]:
    for step, manifest, missing in argo_workflow.resource_manifests(workflow):
        try:
            documents = list(_documents(manifest))
        except UnreadableError:
            continue
        for document in documents:
            for workload in _workloads(document, runtimes):
                workload.kind = f"{workload.kind} of step {step}"
                workload.remarks.changed(f"step {step}", argo_workflow.HINT)
                for name in sorted(missing):
                    workload.remarks.warn(
                        f"step {step}", f"{{{{{name}}}}} has no value in the workflow; it is written as imported"
                    )
                yield workload


def _placeholders(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield numbers that are still variables of a template."""
    if isinstance(value, dict):
        for key, inner in cast(Json, value).items():
            below = f"{path}.{key}" if path else key
            if isinstance(inner, str) and key in _NUMBERS and _PLACEHOLDER.fullmatch(inner):
                yield below, inner
            yield from _placeholders(inner, below)
    elif isinstance(value, list):
        for at, inner in enumerate(cast(list[Any], value)):
            yield from _placeholders(inner, f"{path}[{at}]")


def _name(document: Json) -> str:
    return str(object_at(document, "metadata").get("name"))


def _data(document: Json) -> dict[str, str]:
    return {str(key): value for key, value in object_at(document, "data").items() if isinstance(value, str)}


def _stem(file: str) -> str | None:
    return None if file == "-" else PurePath(file).stem
