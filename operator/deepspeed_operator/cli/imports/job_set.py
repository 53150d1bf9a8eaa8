"""JobSet, and what Kubeflow's TrainJob makes of one with its runtime."""

from collections.abc import Mapping
from typing import Final

from deepspeed_operator.api.untyped import Json, list_at, object_at, objects_at
from deepspeed_operator.cli.imports.batch_jobs import WORLD_VARIABLES, read_job_spec
from deepspeed_operator.cli.imports.fields import Fields, whole_number
from deepspeed_operator.cli.imports.kubeflow_jobs import launches, merge_roles, waits
from deepspeed_operator.cli.imports.remarks import Remarks
from deepspeed_operator.cli.imports.workload import (
    Workload,
    gpus_of,
    program_template,
    run_policy,
    words_of,
    workload_of,
)

_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
# What each installation of Kubeflow Trainer brings: whether the ranks meet by torchrun's variables, or by MPI.
_BUILT_IN: Final = {
    "torch-distributed": "torch",
    "torch-distributed-with-cpu": "torch",
    "deepspeed-distributed": "mpi",
    "mpi-distributed": "mpi",
}
_OWN_NODE: Final = ("node", "trainer")


def job_set(document: Json) -> Workload:
    """Read a jobset.x-k8s.io/v1alpha2 JobSet."""
    fields, remarks = Fields(document), Remarks()
    workload = workload_of(fields, "JobSet", remarks)
    read_replicated_jobs([object_at(each) for each in fields.list("spec", "replicatedJobs")], workload)
    for name, why in (
        ("network", "the job has a Service of its own"),
        ("successPolicy", "spec.successPolicy says whose success is the run's: all pods', unless it is Head"),
        ("startupPolicy", "all pods start together"),
        ("coordinator", "pod 0 is where the ranks meet"),
    ):
        if fields.take("spec", name) is not None:
            remarks.left_out(f"spec.{name}", why)
    restarts = fields.number("spec", "failurePolicy", "maxRestarts")
    if restarts is not None:
        workload.spec["failurePolicy"] = {"maxRestarts": restarts}
        remarks.carried("spec.failurePolicy.maxRestarts", "spec.failurePolicy.maxRestarts")
    run_policy(fields, workload, "spec")
    if fields.object("spec", "failurePolicy"):
        remarks.left_out(
            "spec.failurePolicy", "its rules and strategy; docs/failure-policy.md says how rules are written here"
        )
    fields.name_rest(remarks)
    return workload


def read_replicated_jobs(jobs: list[Json], workload: Workload, *names: str) -> None:
    """Read the jobs of a set: like roles of one world, or one that trains beside others that do not."""
    parts: list[tuple[str, Workload, int]] = []
    for at, job in enumerate(jobs):
        name = str(job.get("name"))
        inner = Fields(object_at(job, "template"))
        part = Workload("", None, None, {}, {}, workload.remarks)
        read_job_spec(inner, part, "spec")
        for field in ("backoffLimit", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "suspend"):
            value = inner.take("spec", field)
            if value not in (None, 0, False):
                workload.remarks.left_out(
                    f"spec.replicatedJobs[{at}].template.spec.{field}",
                    f"{value}: of one Job; spec.failurePolicy and spec.lifecycle are the whole run's",
                )
        replicas = whole_number(job.get("replicas"))
        parts.append((name, part, (part.nodes or 1) * (1 if replicas is None else replicas)))
    training = [part for part in parts if part[0] in names] or _training(parts)
    for name, _, _ in [part for part in parts if part not in training]:
        workload.remarks.left_out(
            f"spec.replicatedJobs[{name}]", "a job of another purpose: make it a Job of its own, or an init container"
        )
    training = sorted(training, key=lambda part: -part[2])
    if not training:
        return
    workload.path = f"spec.replicatedJobs[{training[0][0]}]"
    workload.nodes = sum(count for _, _, count in training)
    merge_roles(workload, [(_with_words(part), count) for _, part, count in training], *names)
    environment = {
        str(each.get("name"))
        for _, part, _ in training
        for box in objects_at(part.template, "spec", "containers")
        for each in objects_at(box, "env")
    }
    workload.joined = bool(environment & WORLD_VARIABLES)
    values = workload.variables.values
    values |= {"JOB_COMPLETION_INDEX": "$(NODE_RANK)"}
    if len(training) == 1 and (training[0][1].nodes or 1) == 1:
        values |= {"JOB_INDEX": "$(NODE_RANK)", "JOB_GLOBAL_INDEX": "$(NODE_RANK)"}


def _training(parts: list[tuple[str, Workload, int]]) -> list[tuple[str, Workload, int]]:
    accelerated = [part for part in parts if gpus_of(part[1].template)]
    if all(waits(part[1].words) for part in accelerated):  # for the one that starts the ranks in them
        accelerated += [part for part in parts if part not in accelerated and launches(part[1].words)]
    return accelerated or parts


def _with_words(part: Workload) -> Json:
    template = part.template
    containers = objects_at(template, "spec", "containers")
    trainer = next(
        (each for each in containers if each.get("name") == "trainer"), containers[0] if containers else None
    )
    if trainer is not None and part.words:
        trainer["command"] = part.words
    return template


def train_job(document: Json, runtimes: Mapping[str, Json]) -> Workload:
    """Read a trainer.kubeflow.org/v1alpha1 TrainJob; `runtimes` are those in the files, by their names."""
    fields, remarks = Fields(document), Remarks()
    workload = workload_of(fields, "TrainJob", remarks)
    reference = fields.object("spec", "runtimeRef")
    name = str(reference.get("name"))
    runtime = runtimes.get(name)
    policy = object_at(runtime, "spec", "mlPolicy")
    _runtime(workload, name, runtime)
    trainer = fields.object("spec", "trainer")
    _own(workload, trainer)
    nodes = whole_number(trainer.get("numNodes")) or whole_number(policy.get("numNodes"))
    kind = "mpi" if object_at(policy, "mpi") else _BUILT_IN.get(name, "torch")
    slots = trainer.get("numProcPerNode") or object_at(policy, kind).get("numProcPerNode")
    workload.nodes, workload.slots = nodes or workload.nodes or 1, whole_number(slots)
    if slots is not None:
        remarks.carried("numProcPerNode", f"{slots} ranks a pod")
    workload.joined, workload.path = True, "spec.trainer"
    values = workload.variables.values
    values |= {"PET_NNODES": str(workload.nodes), "PET_NODE_RANK": "$(NODE_RANK)", "PET_MASTER_ADDR": "$(MASTER_ADDR)"}
    values |= {"PET_MASTER_PORT": "$(MASTER_PORT)", "JOB_COMPLETION_INDEX": "$(NODE_RANK)"}
    if kind == "mpi":
        workload.starts = "one"
    else:
        values["PET_NPROC_PER_NODE"] = str(workload.slots or "auto")
    if fields.object("spec", "initializer"):
        remarks.left_out(
            "spec.initializer", "datasets and models: fetch them in an init container of spec.template, onto a volume"
        )
    for field in ("podTemplateOverrides", "runtimePatches", "podSpecOverrides"):
        if fields.list("spec", field):
            remarks.left_out(f"spec.{field}", "write what they change into spec.template")
    for field in ("labels", "annotations"):
        more = fields.object("spec", field)
        if more:
            object_at(workload.template).setdefault("metadata", {}).setdefault(field, {}).update(more)
            remarks.carried(f"spec.{field}", f"spec.template.metadata.{field}")
    run_policy(fields, workload, "spec")
    fields.name_rest(remarks)
    return workload


def _runtime(workload: Workload, name: str, runtime: Json | None) -> None:
    remarks = workload.remarks
    if runtime is None:
        known = "a runtime of Kubeflow Trainer" if name in _BUILT_IN else "a runtime"
        remarks.warn(
            "spec.runtimeRef",
            f"{name}: {known} that is not among the files; its image, volumes and resources are not carried. "
            f"Import it with the job: kubectl get clustertrainingruntime {name} -o yaml",
        )
        return
    if object_at(runtime, "spec", "podGroupPolicy"):
        remarks.left_out("runtime.spec.podGroupPolicy", "this release asks no gang scheduler")
    jobs = objects_at(runtime, "spec", "template", "spec", "replicatedJobs")
    nodes = [job for job in jobs if job.get("name") in _OWN_NODE or _step(job) == "trainer"]
    read_replicated_jobs(
        [*nodes[:1], *(job for job in jobs if job not in nodes and job.get("name") != "launcher")],
        workload,
        *[str(job.get("name")) for job in nodes[:1]],
    )
    launcher = next((job for job in jobs if job.get("name") == "launcher"), None)
    if launcher is not None:
        remarks.left_out("runtime launcher", "its pod: the program is started in the nodes")
        _, workload.words, _ = program_template(object_at(launcher, "template", "spec", "template"))
        if not nodes:
            read_replicated_jobs([launcher], workload, "launcher")
    remarks.carried("spec.runtimeRef", f"the pod template of {name}")


def _step(job: Json) -> object:
    return object_at(job, "template", "metadata", "labels").get(_STEP)


def _own(workload: Workload, trainer: Json) -> None:
    """Put what the TrainJob itself says into the runtime's template."""
    template = workload.template
    containers = objects_at(template, "spec", "containers")
    if not containers:
        template.setdefault("spec", {})["containers"] = [{"name": "trainer"}]
        containers = objects_at(template, "spec", "containers")
    box = next((each for each in containers if str(each.get("name")) in {"node", "trainer"}), containers[0])
    if words_of(trainer):
        workload.words = words_of(trainer) if trainer.get("command") else [*workload.words, *words_of(trainer)]
    if trainer.get("image"):
        box["image"] = trainer["image"]
        workload.remarks.carried("spec.trainer.image", "the trainer container's image")
    if trainer.get("resourcesPerNode"):
        box["resources"] = trainer["resourcesPerNode"]
        workload.remarks.carried("spec.trainer.resourcesPerNode", "the trainer container's resources")
    mine = {str(object_at(each).get("name")) for each in list_at(trainer, "env")}
    if mine:
        box["env"] = [
            *(each for each in objects_at(box, "env") if str(each.get("name")) not in mine),
            *list_at(trainer, "env"),
        ]
        workload.remarks.carried("spec.trainer.env", "the trainer container's env")
