"""What a document or a text looks like that is none of the kinds that are converted, and what is known of it."""

import re
from collections.abc import Iterator
from typing import Any, Final, cast

from deepspeed_operator.api.names import GROUP
from deepspeed_operator.api.untyped import Json, list_at, object_at
from deepspeed_operator.cli.imports.workload import gpus_of
from deepspeed_operator.dsconfig.wording import quoted

_KINDS: Final = {
    "RayJob": "Ray starts its own workers: run Ray inside a DeepSpeedJob with spec.successPolicy Head, or "
    "import the command of its trainer",
    "RayCluster": "Ray starts its own workers: run Ray inside a DeepSpeedJob with spec.successPolicy Head",
    "RayService": "it serves, and trains nothing",
    "TFJob": "TensorFlow, which DeepSpeed does not train",
    "MXJob": "MXNet, which DeepSpeed does not train",
    "XGBoostJob": "XGBoost, which DeepSpeed does not train",
    "PaddleJob": "PaddlePaddle, which DeepSpeed does not train",
    "JAXJob": "JAX, which DeepSpeed does not train",
    "SparkApplication": "Spark, which starts no ranks",
    "Deployment": "its pods are alike and nameless, so that no rank is one's own: import the command line of "
    "its container",
    "DaemonSet": "a pod on each node: import the command line of its container with --nodes",
    "ReplicaSet": "its pods are alike and nameless: import the command line of its container",
    "CronJob": "import the Job of its jobTemplate; to run it again at times, change spec.runId of the DeepSpeedJob",
    "InferenceService": "it serves, and trains nothing",
    "Notebook": "it is for work by hand",
    "AppWrapper": "import the object within it, at spec.components[].template",
    "ClusterTrainingRuntime": "a runtime is imported with a TrainJob that refers to it: name both files",
    "TrainingRuntime": "a runtime is imported with a TrainJob that refers to it: name both files",
    "Workflow": "no step of it creates a resource: import the command line of the step's container",
    "WorkflowTemplate": "no step of it creates a resource: import the command line of the step's container",
    "CronWorkflow": "no step of it creates a resource: import the command line of the step's container",
    "Experiment": "a search over jobs: import the job of its trialTemplate",
}
# Objects that stand beside a job, and what becomes of them.
_BESIDE: Final = {
    "ConfigMap": "stays as it is: apply it, too, where the job refers to it",
    "Secret": "stays as it is: apply it, too, where the job refers to it",
    "PersistentVolumeClaim": "stays as it is: apply it, too",
    "PersistentVolume": "stays as it is: apply it, too",
    "ServiceAccount": "stays as it is: apply it, too",
    "Namespace": "stays as it is",
    "Service": "is not needed for the ranks: the job has a headless Service of its own",
    "Role": "is not needed for the ranks: they ask nothing of the API server",
    "RoleBinding": "is not needed for the ranks: they ask nothing of the API server",
    "ClusterTrainingRuntime": "is the template of the TrainJobs that refer to it",
    "TrainingRuntime": "is the template of the TrainJobs that refer to it",
    "LocalQueue": "stays as it is: apply it, too",
    "PodGroup": "is not needed: this release asks no gang scheduler",
}
_TEXTS: Final = (
    (
        re.compile(r"\{\{-?\s*(\.Values|include|\$|if|range|\.Release)"),
        "a Helm template: render it first, with helm template, and import that",
    ),
    (
        re.compile(r"^#PBS\s", re.MULTILINE),
        "a PBS script: write its -l select as --nodes and --slots, and import the command line that it runs",
    ),
    (
        re.compile(r"^#BSUB\s", re.MULTILINE),
        "an LSF script: write its -n as --nodes and --slots, and import the command line that it runs",
    ),
    (
        re.compile(r"^#\$\s+-", re.MULTILINE),
        "a Grid Engine script: import the command line that it runs, with --nodes and --slots",
    ),
    (
        re.compile(r"^FROM\s+\S+.*^(RUN|CMD|ENTRYPOINT)\s", re.MULTILINE | re.DOTALL),
        "a Dockerfile: build it, and import the command line of its entrypoint",
    ),
    (
        re.compile(r"^(import|from)\s+(torch|deepspeed|transformers|lightning|accelerate)", re.MULTILINE),
        "a Python program: import the command line that starts it",
    ),
    (
        re.compile(r"^\S+\s+slots=\d+", re.MULTILINE),
        "a hostfile: the operator writes its own; import the command line, with --nodes and --slots",
    ),
)
_KEYS: Final = (
    (
        {"zero_optimization"},
        "a DeepSpeed configuration: it is spec.dsConfig of a DeepSpeedJob; dsjob validate judges it by itself",
    ),
    (
        {"compute_environment", "distributed_type"},
        "a configuration of accelerate: import the command line that uses it",
    ),
    ({"resources", "run"}, "a SkyPilot task: import the command line of its run, with --nodes and --slots"),
    ({"entrypoint", "searcher"}, "a Determined experiment: import the command line of its entrypoint"),
    ({"services"}, "a Compose file: import the command line of its service"),
    ({"bases"}, "a kustomization: render it first, with kubectl kustomize, and import that"),
    ({"resources", "kind"}, "a kustomization: render it first, with kubectl kustomize, and import that"),
)


def beside(document: Json) -> str | None:
    """Return what becomes of an object that stands beside a job; None where it is none of these."""
    kind = str(document.get("kind"))
    what = _BESIDE.get(kind)
    return None if what is None else f"{_named(document)} {what}"


def unknown_document(document: Json) -> str:
    """Say what a document looks like that is not converted, and what it says that would count."""
    kind, version = str(document.get("kind") or ""), str(document.get("apiVersion"))
    if version.startswith(f"{GROUP}/"):
        return f"{_named(document)} is a DeepSpeedJob already: dsjob validate judges it"
    if not kind:
        looks = next((text for keys, text in _KEYS if keys <= document.keys()), "no Kubernetes object: it has no kind")
        return f"it looks like {looks}" if not looks.startswith("no") else looks
    if kind == "MPIJob" and version.endswith("v1alpha1"):
        why = "MPIJob v1alpha1 has gone long ago: write it as v2beta1, with a Launcher and Workers"
    elif kind in {"Job", "JobSet", "PyTorchJob"}:
        why = f"of {version}, which is not known; the kinds that are converted are those of docs/import.md"
    else:
        why = _KINDS.get(kind, "a kind that is not known")
    known = "; ".join(dict.fromkeys(_pods(document)))
    return f"{_named(document)}: {why}" + (f". What it runs: {known}" if known else "")


def unknown_text(text: str) -> str:
    """Say what a text looks like that is neither manifest nor script."""
    return next(
        (f"it looks like {what}" for pattern, what in _TEXTS if pattern.search(text)),
        "it looks like nothing that is known",
    )


def looks_templated(text: str) -> str | None:
    """Return what to do with a template of manifests, None where the text is none."""
    return f"it looks like {_TEXTS[0][1]}" if _TEXTS[0][0].search(text) else None


def _named(document: Json) -> str:
    name = object_at(document, "metadata").get("name")
    return f"{document.get('kind')} {name}" if isinstance(name, str) else str(document.get("kind"))


def _pods(value: object) -> Iterator[str]:
    """Yield what the containers of any pod template in the document run."""
    if isinstance(value, dict):
        members = cast(Json, value)
        for container in list_at(members, "containers"):
            shown = " ".join(str(word) for word in [*list_at(container, "command"), *list_at(container, "args")])
            gpus = gpus_of({"spec": {"containers": [container]}})
            image = object_at(container).get("image")
            yield f"image {image}" + (f", {gpus} GPUs" if gpus else "") + (f", {quoted(shown)}" if shown else "")
        for inner in members.values():
            yield from _pods(inner)
    elif isinstance(value, list):
        for inner in cast(list[Any], value):
            yield from _pods(inner)
