"""Kinds that run one pod template a number of times: Job, StatefulSet, Pod, LeaderWorkerSet, Volcano's Job."""

import re

from deepspeed_operator.api.untyped import Json, list_at, object_at, objects_at
from deepspeed_operator.cli.imports.fields import Fields, whole_number
from deepspeed_operator.cli.imports.kubeflow_jobs import merge_roles, shown
from deepspeed_operator.cli.imports.remarks import Remarks
from deepspeed_operator.cli.imports.workload import Workload, gpus_of, program_template, run_policy, workload_of

_NO_GANG = (
    "this release asks no gang scheduler; spec.lifecycle.partialGangDeadlineSeconds gives back pods of "
    "a gang that cannot all run"
)
WORLD_VARIABLES = frozenset({"WORLD_SIZE", "NNODES", "MASTER_ADDR", "PET_NNODES", "NUM_NODES"})


def plain_job(document: Json) -> Workload:
    """Read a batch/v1 Job."""
    fields, remarks = Fields(document), Remarks()
    workload = workload_of(fields, "Job", remarks)
    read_job_spec(fields, workload, "spec")
    run_policy(fields, workload, "spec")
    fields.name_rest(remarks)
    return workload


def read_job_spec(fields: Fields, workload: Workload, *at: str) -> None:
    """Read a JobSpec: its template, and how many of its pods there are."""
    path = ".".join(at)
    parallelism, completions = fields.number(*at, "parallelism"), fields.number(*at, "completions")
    workload.nodes = parallelism or completions or 1
    if completions is not None and completions != workload.nodes:
        workload.remarks.warn(
            f"{path}.completions",
            f"{completions} pods had to complete, {workload.nodes} at a time: the job is one gang of {workload.nodes}",
        )
    for name, why in (
        ("completionMode", "a gang's pods always have an index"),
        ("selector", "the operator selects its own pods"),
        ("manualSelector", "the operator selects its own pods"),
        ("podReplacementPolicy", "the operator replaces pods as a gang needs it"),
        (
            "podFailurePolicy",
            "spec.failurePolicy.rules says what follows a failure; write its rules by docs/failure-policy.md",
        ),
        ("backoffLimitPerIndex", "a gang starts again as a whole"),
        ("maxFailedIndexes", "a gang starts again as a whole"),
        ("successPolicy", "spec.successPolicy says whose success is the run's"),
    ):
        if fields.take(*at, name) is not None:
            workload.remarks.left_out(f"{path}.{name}", why)
    workload.path = f"{path}.template"
    _pods(fields.object(*at, "template"), workload)
    workload.variables.values["JOB_COMPLETION_INDEX"] = "$(NODE_RANK)"


def stateful_set(document: Json) -> Workload:
    """Read an apps/v1 StatefulSet."""
    fields, remarks = Fields(document), Remarks()
    workload = workload_of(fields, "StatefulSet", remarks)
    workload.nodes = fields.number("spec", "replicas") or 1
    workload.path = "spec.template"
    _pods(fields.object("spec", "template"), workload)
    for name, why in (
        ("serviceName", "the job has a Service of its own"),
        ("selector", "the operator selects its own pods"),
        ("podManagementPolicy", "all pods are made at once"),
        ("updateStrategy", "a run does not change; a new spec.runId starts another"),
        ("persistentVolumeClaimRetentionPolicy", "the claim is yours"),
        ("revisionHistoryLimit", "a run does not change"),
        ("minReadySeconds", "a pod is ready when its ranks run"),
        ("ordinals", "pods are numbered from 0"),
    ):
        if fields.take("spec", name) is not None:
            remarks.left_out(f"spec.{name}", why)
    for claim in fields.list("spec", "volumeClaimTemplates"):
        name = object_at(claim, "metadata").get("name")
        volumes = list_at(workload.template, "spec", "volumes")
        object_at(workload.template, "spec")["volumes"] = [
            *volumes,
            {"name": name, "persistentVolumeClaim": {"claimName": name}},
        ]
        remarks.warn(
            "spec.volumeClaimTemplates",
            f"{name}: each pod had a volume of its own; here all mount the claim {name}, which must exist and "
            "allow it (ReadWriteMany)",
        )
    remarks.changed(
        "kind", "a StatefulSet starts its pods again for ever; a run ends, with success or by spec.failurePolicy"
    )
    fields.name_rest(remarks)
    return workload


def single_pod(document: Json) -> Workload:
    """Read a v1 Pod."""
    fields, remarks = Fields(document), Remarks()
    workload = workload_of(fields, "Pod", remarks)
    workload.nodes, workload.path = 1, "spec"
    _pods({"spec": fields.object("spec")}, workload)
    fields.name_rest(remarks)
    return workload


def leader_worker_set(document: Json) -> Workload:
    """Read a leaderworkerset.x-k8s.io/v1 LeaderWorkerSet."""
    fields, remarks = Fields(document), Remarks()
    workload = workload_of(fields, "LeaderWorkerSet", remarks)
    at = ("spec", "leaderWorkerTemplate")
    replicas = fields.number("spec", "replicas") or 1
    if replicas > 1:
        remarks.warn(
            "spec.replicas",
            f"{replicas} groups, each a world of its own: this is one of them; make a job of another name for each",
        )
    workload.nodes = fields.number(*at, "size") or 1
    leader, worker = fields.object(*at, "leaderTemplate"), fields.object(*at, "workerTemplate")
    workload.path = ".".join((*at, "workerTemplate"))
    many = workload.nodes - 1
    merge_roles(workload, [(worker, many), *([(leader, 1)] if leader else [])], "worker", "leader")
    for name in ("restartPolicy", "subGroupPolicy", "resizePolicy", "volumeClaimTemplates"):
        if fields.take(*at, name) is not None:
            remarks.left_out(
                f"{'.'.join(at)}.{name}",
                "a gang starts again as a whole; spec.failurePolicy says after what, and how often",
            )
    for name in ("rolloutStrategy", "startupPolicy", "networkConfig"):
        if fields.take("spec", name) is not None:
            remarks.left_out(f"spec.{name}", "all pods start together, and find each other by the job's own Service")
    values = workload.variables.values
    values |= {
        "LWS_GROUP_SIZE": str(workload.nodes),
        "LWS_WORKER_INDEX": "$(NODE_RANK)",
        "LWS_LEADER_ADDRESS": "$(MASTER_ADDR)",
    }
    _joined_by_environment(workload)
    fields.name_rest(remarks)
    return workload


def volcano_job(document: Json) -> Workload:
    """Read a batch.volcano.sh/v1alpha1 Job."""
    fields, remarks = Fields(document), Remarks()
    workload = workload_of(fields, "Volcano Job", remarks)
    tasks = sorted((object_at(each) for each in fields.list("spec", "tasks")), key=_is_head)
    plugins = fields.object("spec", "plugins")
    mpi = "mpi" in plugins or any(re.search(r"mpirun|mpiexec", str(task)) for task in tasks if _is_head(task))
    if mpi and len(tasks) > 1:
        _mpi_tasks(workload, tasks)
    else:
        workload.nodes = sum(_task_replicas(task) for task in tasks)
        workload.path = "spec.tasks"
        merge_roles(
            workload,
            [(object_at(task, "template"), _task_replicas(task)) for task in tasks],
            "worker",
            "master",
            "pytorch",
        )
        workload.joined = "pytorch" in plugins
        if workload.joined:
            workload.variables.values |= {"WORLD_SIZE": str(workload.nodes), "RANK": "$(NODE_RANK)"}
        else:
            _joined_by_environment(workload)
    values = workload.variables.values
    values |= {"VC_TASK_INDEX": "$(NODE_RANK)", "VK_TASK_INDEX": "$(NODE_RANK)"}
    if plugins:
        remarks.left_out(
            "spec.plugins", f"{', '.join(plugins)}: the job's pods find each other by its own Service, without ssh"
        )
    for task in tasks:
        if task.get("policies") or task.get("maxRetry") or task.get("minAvailable") is not None:
            remarks.left_out(
                f"spec.tasks[{task.get('name')}]",
                "policies, maxRetry, minAvailable: a gang starts and ends as a whole; spec.failurePolicy says "
                "after what",
            )
    restarts = fields.number("spec", "maxRetry")
    if restarts is not None:
        workload.spec["failurePolicy"] = {"maxRestarts": restarts}
        remarks.carried("spec.maxRetry", "spec.failurePolicy.maxRestarts")
    priority = fields.text("spec", "priorityClassName")
    if priority is not None:
        object_at(workload.template, "spec").setdefault("priorityClassName", priority)
        remarks.carried("spec.priorityClassName", "spec.template.spec.priorityClassName")
    for name, why in (
        ("minAvailable", "all pods of a job are needed"),
        ("minSuccess", "all pods of a job are needed"),
        ("schedulerName", _NO_GANG),
        ("queue", _NO_GANG),
        ("policies", "spec.failurePolicy says what follows a failure"),
        ("volumes", "mount the claims by spec.template"),
        ("networkTopology", "write affinity into spec.template"),
        ("runningEstimate", "nothing plans by it"),
    ):
        if fields.take("spec", name) is not None:
            remarks.left_out(f"spec.{name}", why)
    run_policy(fields, workload, "spec")
    fields.name_rest(remarks)
    return workload


def _mpi_tasks(workload: Workload, tasks: list[Json]) -> None:
    head, workers = tasks[-1], tasks[0]
    workload.nodes, workload.path = sum(_task_replicas(task) for task in tasks[:-1]), f"spec.tasks[{head.get('name')}]"
    _, workload.words, _ = program_template(object_at(head, "template"), "mpimaster", "master")
    workload.template, ignored, _ = program_template(object_at(workers, "template"), "mpiworker", "worker")
    workload.starts, workload.joined = "one", True
    if not gpus_of(workload.template):
        workload.slots = 1
    if ignored:
        workload.remarks.left_out(
            f"spec.tasks[{workers.get('name')}]",
            f"{shown(ignored)}: workers waited for ssh; here each pod runs the program",
        )
    workload.remarks.left_out(f"spec.tasks[{head.get('name')}]", "its pod: the program is started in the workers")


def _is_head(task: Json) -> bool:
    return any(word in str(task.get("name")).lower() for word in ("master", "launcher", "leader", "head", "driver"))


def _task_replicas(task: Json) -> int:
    found = whole_number(task.get("replicas"))
    return 1 if found is None else found


def _pods(template: Json, workload: Workload) -> None:
    workload.template, workload.words, _ = program_template(template, "pytorch", "worker", "main")
    _joined_by_environment(workload)


def _joined_by_environment(workload: Workload) -> None:
    """Pods that are told of a world by their environment form one."""
    names = {
        str(each.get("name"))
        for container in objects_at(workload.template, "spec", "containers")
        for each in objects_at(container, "env")
    }
    workload.joined = workload.joined or bool(names & WORLD_VARIABLES)
