"""One training workload as its own kind describes it, before it becomes a DeepSpeedJob."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from posixpath import normpath, relpath
from typing import Final

from deepspeed_operator.api.names import TRAINER
from deepspeed_operator.api.queueing import LABEL_PRIORITY, LABEL_QUEUE
from deepspeed_operator.api.untyped import Json, list_at, object_at, objects_at
from deepspeed_operator.cli.imports.expansion import Variables
from deepspeed_operator.cli.imports.fields import Fields
from deepspeed_operator.cli.imports.remarks import Remarks
from deepspeed_operator.job.accelerators import known_accelerator
from deepspeed_operator.job.template import PodTemplate

ConfigMaps = Mapping[str, Mapping[str, str]]  # the data of those in the files, by their names
_QUEUES: Final = ("kueue.x-k8s.io/", "scheduling.x-k8s.io/", "volcano.sh/", "run.ai/", "runai/")
_SCHEDULING: Final = {LABEL_QUEUE: "queueName", LABEL_PRIORITY: "priorityClassName"}
_MANAGERS: Final = ("kubectl.kubernetes.io/", "argocd.argoproj.io/", "helm.sh/", "meta.helm.sh/", "kustomize.toolkit")


@dataclass(slots=True)
class Workload:
    """A gang of like pods and the program in them.

    `kind`: that of the source; `path`: where the trainer container stands in it.
    `nodes`: pods; None where only the program says it. `slots`: ranks a pod; None where the template or program says.
    `template`: the pods'; `words`: what runs, in Kubernetes' form.
    `script`: a script instead; `batch`: whether it is one of a batch system.
    `starts`: how many of the pods run that: all of them, or one that starts the ranks in the others.
    `joined`: whether the kind tells each pod of the others, so that a launcher need not be told.
    `variables`: those that the kind sets, and what becomes of them.
    `spec`: other fields of the DeepSpeedJob's spec.
    """

    kind: str
    name: str | None
    namespace: str | None
    labels: Json
    annotations: Json
    remarks: Remarks
    path: str = ""
    nodes: int | None = None
    slots: int | None = None
    template: Json = field(default_factory=dict[str, object])
    words: list[str] = field(default_factory=list[str])
    script: str | None = None
    batch: bool = False
    starts: str = "all"
    joined: bool = False
    variables: Variables = field(default_factory=Variables)
    spec: Json = field(default_factory=dict[str, object])
    config_maps: ConfigMaps = field(default_factory=dict[str, dict[str, str]])


def workload_of(fields: Fields, kind: str, remarks: Remarks) -> Workload:
    """Begin a workload with the metadata of a Kubernetes object."""
    fields.take("apiVersion")
    fields.take("kind")
    name, generated = fields.text("metadata", "name"), fields.text("metadata", "generateName")
    if name is None and generated is not None:
        name = generated.rstrip("-.")
        remarks.changed(
            "metadata.generateName", f"the job is named {name}: run it again by a new spec.runId, or by another name"
        )
    labels = fields.object("metadata", "labels")
    scheduling = {field: labels.pop(label) for label, field in _SCHEDULING.items() if label in labels}
    for label, name_of_field in _SCHEDULING.items():
        if name_of_field in scheduling:
            remarks.carried(f"metadata.labels[{label}]", f"spec.scheduling.{name_of_field}")
    labels = _kept(labels, "metadata.labels", remarks)
    annotations = _kept(fields.object("metadata", "annotations"), "metadata.annotations", remarks)
    workload = Workload(kind, name, fields.text("metadata", "namespace"), labels, annotations, remarks)
    if scheduling:
        workload.spec["scheduling"] = scheduling
    return workload


def _kept(labels: Json, path: str, remarks: Remarks) -> Json:
    kept: Json = {}
    for name, value in labels.items():
        if name.startswith(_QUEUES):
            remarks.left_out(f"{path}[{name}]", f"{value}: this release asks Kueue alone, by queue and priority class")
        elif not name.startswith(_MANAGERS):
            kept[name] = value
    return kept


def trainer_of(template: Json, *names: str) -> int | None:
    """Return which container trains: one of these names, else one with an accelerator, else the first."""
    containers = [object_at(each) for each in list_at(template, "spec", "containers")]
    for name in (TRAINER, *names):
        for at, container in enumerate(containers):
            if container.get("name") == name:
                return at
    for at, container in enumerate(containers):
        if any(known_accelerator(resource) for resource in object_at(container, "resources", "limits")):
            return at
    return 0 if containers else None


def words_of(container: Json) -> list[str]:
    """Return what a container runs, as far as the manifest says it."""
    return [str(word) for word in [*list_at(container, "command"), *list_at(container, "args")]]


def program_template(template: Json, *names: str) -> tuple[Json, list[str], Json]:
    """Return the template without the trainer's program, that program, and the trainer; the trainer is named so."""
    copy = deepcopy(template)
    at = trainer_of(copy, *names)
    containers = list_at(copy, "spec", "containers")
    if at is None:
        return copy, [], {}
    trainer = object_at(containers[at])
    words = words_of(trainer)
    trainer.pop("command", None)
    trainer.pop("args", None)
    if len(containers) > 1:
        trainer["name"] = TRAINER
    return copy, words, trainer


def gpus_of(template: Json) -> int | None:
    """Return the accelerators that a pod of a template takes, None where it names none."""
    limits = PodTemplate.parse(template).limits
    counts = [str(quantity) for resource, quantity in limits.items() if known_accelerator(resource)]
    return int(counts[0]) if counts and counts[0].isdecimal() else None


def file_reader(template: Json, trainer: Json, config_maps: ConfigMaps) -> Callable[[str], str | None]:
    """Return what reads a file of the container that comes from a ConfigMap in the files; None for any other."""

    def read(path: str) -> str | None:
        found = mounted(template, trainer, path)
        return None if found is None else config_maps.get(found[0], {}).get(found[1])

    return read


def mounted(template: Json, trainer: Json, path: str) -> tuple[str, str] | None:
    """Return the ConfigMap and key that are mounted at a path of the trainer, None where none is."""
    if not path.startswith("/"):
        path = f"{trainer.get('workingDir') or '/'}/{path}"
    volumes = {str(each.get("name")): object_at(each, "configMap") for each in objects_at(template, "spec", "volumes")}
    for mount in objects_at(trainer, "volumeMounts"):
        source, at = volumes.get(str(mount.get("name"))) or {}, normpath(str(mount.get("mountPath")))
        name = source.get("name")
        if not isinstance(name, str):
            continue
        key = mount.get("subPath") if at == normpath(path) else None
        if key is None and normpath(path).startswith(f"{at}/"):
            key = relpath(normpath(path), at)
        if isinstance(key, str):
            items = {str(item.get("path")): str(item.get("key")) for item in objects_at(source, "items")}
            return name, items.get(key, key)
    return None


def run_policy(fields: Fields, workload: Workload, *at: str) -> None:
    """Carry what kinds say of a run's end: `at` is where (spec, or spec.runPolicy)."""
    path, remarks = ".".join(at), workload.remarks
    lifecycle: Json = {}
    for name in ("ttlSecondsAfterFinished", "activeDeadlineSeconds"):
        value = fields.number(*at, name)
        if value is not None:
            lifecycle[name] = value
            remarks.carried(f"{path}.{name}", f"spec.lifecycle.{name}")
    if "ttlSecondsAfterFinished" in lifecycle:
        remarks.changed(
            f"{path}.ttlSecondsAfterFinished", "the pods go then, and the DeepSpeedJob stays with its status"
        )
    clean = fields.text(*at, "cleanPodPolicy")
    if clean == "All":
        lifecycle["cleanPodPolicy"] = "DeleteAll"
        remarks.carried(f"{path}.cleanPodPolicy", "spec.lifecycle.cleanPodPolicy: DeleteAll")
    elif clean is not None:
        remarks.changed(
            f"{path}.cleanPodPolicy", f"{clean}: pods that still run are deleted, those that ended stay for their logs"
        )
    restarts = fields.number(*at, "backoffLimit")
    if restarts is not None:
        workload.spec["failurePolicy"] = {"maxRestarts": restarts}
        remarks.carried(
            f"{path}.backoffLimit",
            "spec.failurePolicy.maxRestarts: the whole gang starts again, from its last checkpoint if it loads one",
        )
    suspended = fields.take(*at, "suspend") is True
    if suspended and "scheduling" in workload.spec:
        remarks.changed(f"{path}.suspend", "is how Kueue keeps that kind waiting; a DeepSpeedJob waits in its queue")
    elif suspended:
        workload.spec["suspend"] = True
        remarks.carried(f"{path}.suspend", "spec.suspend")
    manager = fields.text(*at, "managedBy")
    if manager is not None:
        remarks.left_out(f"{path}.managedBy", f"{manager}: it names the controller of another kind")
    if lifecycle:
        workload.spec["lifecycle"] = lifecycle
