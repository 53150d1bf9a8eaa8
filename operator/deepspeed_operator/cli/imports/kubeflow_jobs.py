"""PyTorchJob and MPIJob of Kubeflow's training-operator and mpi-operator."""

import re
from collections.abc import Sequence
from typing import Any

from deepspeed_operator.api.untyped import Json, list_at, object_at, objects_at
from deepspeed_operator.cli.imports.fields import Fields, whole_number
from deepspeed_operator.cli.imports.remarks import Remarks
from deepspeed_operator.cli.imports.workload import Workload, gpus_of, program_template, run_policy, workload_of
from deepspeed_operator.dsconfig.wording import quoted

_WAITING = re.compile(r"\bsshd\b|\bssh\s+start\b|\bsleep\s+(inf|\d)|tail\s+-f\s+/dev/null|\bwhile\s+(true|:)")
_SERVING = re.compile(
    r"\bvllm(\.entrypoints|[ -]serve\b)|\bmulti-node-serving|sglang\.launch_server|\btr(tllm-serve|itonserver)\b"
)
_STARTING = re.compile(r"\b(deepspeed|torchrun|accelerate|mpirun|mpiexec|python[\d.]*)\b")
_FORWARDED = ("NCCL_", "UCX_", "PYTHON", "HF_", "WANDB_")


def pytorch_job(document: Json) -> Workload:
    """Read a kubeflow.org/v1 PyTorchJob."""
    fields, remarks = Fields(document), Remarks()
    workload = workload_of(fields, "PyTorchJob", remarks)
    master, workers = (
        fields.object("spec", "pytorchReplicaSpecs", "Master"),
        fields.object("spec", "pytorchReplicaSpecs", "Worker"),
    )
    counts = [_replicas(each) for each in (master, workers) if each]
    nodes = sum(counts)
    roles = [each for each in (workers, master) if each and _replicas(each)]
    workload.path = "spec.pytorchReplicaSpecs.Worker" if workers in roles else "spec.pytorchReplicaSpecs.Master"
    _restart_policies(remarks, "spec.pytorchReplicaSpecs", Master=master, Worker=workers)
    elastic = fields.object("spec", "elasticPolicy")
    most = whole_number(elastic.get("maxReplicas"))
    if elastic:
        remarks.left_out(
            "spec.elasticPolicy",
            f"a job has a fixed number of nodes, here {nodes}" + (f"; it grew to {most} before" if most else ""),
        )
        restarts = whole_number(elastic.get("maxRestarts"))
        if restarts is not None:
            workload.spec["failurePolicy"] = {"maxRestarts": restarts}
            remarks.carried("spec.elasticPolicy.maxRestarts", "spec.failurePolicy.maxRestarts")
    slots = fields.take("spec", "nprocPerNode") or elastic.get("nProcPerNode")
    _roles(workload, roles, "pytorch")
    processes = whole_number(slots)
    if slots is not None:
        remarks.carried("spec.nprocPerNode", f"{slots} ranks a pod")
    workload.nodes, workload.slots, workload.joined = nodes, processes, True
    if str(slots) == "gpu" or (slots == "auto" and gpus_of(workload.template)):
        workload.slots = gpus_of(workload.template)
    values = workload.variables.values
    values |= {
        "WORLD_SIZE": str(nodes),
        "RANK": "$(NODE_RANK)",
        "PET_NNODES": str(nodes),
        "PET_NODE_RANK": "$(NODE_RANK)",
    }
    values |= {"PET_MASTER_ADDR": "$(MASTER_ADDR)", "PET_MASTER_PORT": "$(MASTER_PORT)"}
    values |= {"PET_NPROC_PER_NODE": str(workload.slots or 1)}
    _run_policy(fields, workload)
    fields.name_rest(remarks)
    return workload


def mpi_job(document: Json) -> Workload:
    """Read an MPIJob, v1 of the training-operator or v2beta1 of the mpi-operator."""
    fields, remarks = Fields(document), Remarks()
    workload = workload_of(fields, "MPIJob", remarks)
    launcher, workers = (
        fields.object("spec", "mpiReplicaSpecs", "Launcher"),
        fields.object("spec", "mpiReplicaSpecs", "Worker"),
    )
    _restart_policies(remarks, "spec.mpiReplicaSpecs", Launcher=launcher, Worker=workers)
    slots = fields.number("spec", "slotsPerWorker")
    alone = fields.take("spec", "runLauncherAsWorker") is True or not workers
    nodes = _replicas(workers) if workers else 0
    launcher_template = object_at(launcher, "template")
    _, words, started = program_template(launcher_template, "launcher", "mpi-launcher")
    workload.path = "spec.mpiReplicaSpecs.Launcher"
    workload.words = words
    template, ignored, worker = program_template(
        object_at(workers, "template") if workers else launcher_template, "worker", "mpi-worker"
    )
    workload.template = template
    if ignored and workers:
        remarks.left_out(
            "spec.mpiReplicaSpecs.Worker",
            f"{shown(ignored)}: workers waited for ssh; here each pod runs the program",
        )
    if workers:
        _launcher_environment(started, worker, remarks, "spec.mpiReplicaSpecs.Launcher")
        if started.get("image") and started.get("image") != worker.get("image"):
            remarks.changed(
                "spec.mpiReplicaSpecs.Launcher",
                f"its image {started.get('image')} is not used: the program ran in the workers'",
            )
        if started.get("workingDir") and not worker.get("workingDir"):
            worker["workingDir"] = started["workingDir"]
            remarks.carried("spec.mpiReplicaSpecs.Launcher", "workingDir, in which it started the program")
        remarks.left_out(
            "spec.mpiReplicaSpecs.Launcher",
            "its pod: the program is started in the workers, without a launcher's pod"
            + (", which was a worker, too, and counts as one" if alone else ""),
        )
    workload.nodes = nodes + (1 if alone else 0)
    workload.slots = slots
    if slots is not None:
        remarks.carried("spec.slotsPerWorker", f"{slots} ranks a pod")
    elif not gpus_of(template):
        workload.slots = 1
    workload.starts, workload.joined = "one", True
    for name, why in (
        ("sshAuthMountPath", "no ssh is needed"),
        ("mpiImplementation", "no MPI is needed"),
        ("launcherCreationPolicy", "the agents wait for each other"),
        ("mainContainer", "the trainer container is the one named trainer, or the only one"),
        ("mpiDistribution", "no MPI is needed"),
    ):
        if fields.take("spec", name) is not None:
            remarks.left_out(f"spec.{name}", why)
    run_policy(fields, workload, "spec")
    _run_policy(fields, workload)
    fields.name_rest(remarks)
    return workload


def _roles(workload: Workload, roles: Sequence[Json], container: str) -> None:
    """Take the template of the first role; say how the others differ from it."""
    merge_roles(workload, [(object_at(role, "template"), _replicas(role)) for role in roles], container)


def merge_roles(workload: Workload, roles: Sequence[tuple[Json, int]], *names: str) -> None:
    """Make one template of like roles, the first of which has most pods, and say how the others differ.

    `roles`: templates and how many pods each has; `names`: of the container that trains.
    """
    if not roles:
        return
    roles = sorted(roles, key=lambda role: not waits(program_template(role[0], *names)[1]))
    template, words, trainer = program_template(roles[0][0], *names)
    workload.template, workload.words = template, words
    for other, count in roles[1:]:
        second, second_words, second_trainer = program_template(other, *names)
        if _SERVING.search(" ".join(second_words)) and not launches(words):
            workload.remarks.refuse(workload.path, f"{shown(second_words)}: it serves, and trains nothing")
        if waits(words) and second_words and not waits(second_words):
            _start_in_workers(workload, words, trainer, second_trainer)
            workload.words = words = second_words
            if gpus_of(template) and not gpus_of(second):
                workload.nodes = (workload.nodes or count) - count
                workload.remarks.left_out(workload.path, "its launcher's pod: the program is started in the workers")
                continue
        if not words and second_words:
            workload.words = words = second_words
        if len(roles) > 1 and second_words != words and _numbers_nodes(second_words, words):
            workload.words = words = _without_rank(words)
            workload.remarks.changed(
                workload.path, "the roles' commands differ in the number of the node, which the operator gives"
            )
        elif second_words and second_words != words:
            workload.remarks.warn(
                workload.path,
                f"another role runs something else, and here all pods run the same: left out is {shown(second_words)}",
            )
        if object_at(trainer, "resources") != object_at(second_trainer, "resources"):
            workload.remarks.warn(
                workload.path, "the roles' resources differ, and here all pods have those of this one"
            )
        elif second.get("spec") != template.get("spec"):
            workload.remarks.changed(
                workload.path, "the roles' pods differ in more than the command, and here all have this one's template"
            )


def waits(words: Sequence[str]) -> bool:
    """Whether a container does nothing but wait for ssh, by which another one starts the ranks."""
    text = " ".join(words)
    return _WAITING.search(text) is not None and _STARTING.search(text) is None


def launches(words: Sequence[str]) -> bool:
    """Whether a container runs a program that may start ranks."""
    return _STARTING.search(" ".join(words)) is not None


def _start_in_workers(workload: Workload, words: Sequence[str], worker: Json, launcher: Json) -> None:
    why = "these pods waited for ssh; here each runs the program"
    workload.remarks.left_out(workload.path, f"{shown(words)}: {why}")
    _launcher_environment(launcher, worker, workload.remarks, workload.path)
    workload.starts = "one"


def shown(words: Sequence[str]) -> str:
    """Return a command as messages show it: in one line, and short."""
    return quoted(" ".join(" ".join(words).split()))


def _numbers_nodes(one: Sequence[str], other: Sequence[str]) -> bool:
    return len(one) == len(other) and _without_rank(one) == _without_rank(other)


def _without_rank(words: Sequence[str]) -> list[str]:
    flags = r"(--(?:node|machine)[-_]rank)([=\s]+)\d+"
    joined = [re.sub(flags, r"\1\2$(NODE_RANK)", word) for word in words]
    for at, word in enumerate(joined[:-1]):
        if re.fullmatch(r"--(?:node|machine)[-_]rank", word) and joined[at + 1].isdecimal():
            joined[at + 1] = "$(NODE_RANK)"
    return joined


def _launcher_environment(launcher: Json, worker: Json, remarks: Remarks, path: str) -> None:
    """The launcher's variables reached the workers where the launcher forwards them, such as NCCL's by deepspeed."""
    known = {str(each.get("name")) for each in objects_at(worker, "env")}
    mine: list[Any] = []
    for variable in objects_at(launcher, "env"):
        name = str(variable.get("name"))
        if name in known:
            continue
        if name.startswith(_FORWARDED):
            mine.append(variable)
            remarks.carried(path, f"env {name}")
        else:
            remarks.left_out(
                path,
                f"env {name}: the launcher's own; if the ranks need it, write it into the trainer container's env",
            )
    if mine:
        worker["env"] = [*list_at(worker, "env"), *mine]


def _replicas(role: Json) -> int:
    found = whole_number(role.get("replicas"))
    return 1 if found is None else found


def _restart_policies(remarks: Remarks, path: str, **roles: Json) -> None:
    for name, role in roles.items():
        policy = str(role.get("restartPolicy") or "Never")
        if policy != "Never":
            remarks.changed(
                f"{path}.{name}.restartPolicy",
                f"{policy}: a gang starts again as a whole; spec.failurePolicy says after what, and how often",
            )


def _run_policy(fields: Fields, workload: Workload) -> None:
    before = workload.spec.get("lifecycle"), workload.spec.get("failurePolicy")
    run_policy(fields, workload, "spec", "runPolicy")
    if before[0]:
        workload.spec["lifecycle"] = {**before[0], **workload.spec.get("lifecycle", {})}
    for name in ("minAvailable", "minMember", "queue", "minResources", "scheduleTimeoutSeconds"):
        value = fields.take("spec", "runPolicy", "schedulingPolicy", name)
        if value is not None:
            workload.remarks.left_out(
                f"spec.runPolicy.schedulingPolicy.{name}",
                f"{value}: this release asks no gang scheduler; pods of a gang that cannot all run "
                "are given back by spec.lifecycle.partialGangDeadlineSeconds",
            )
    priority = fields.text("spec", "runPolicy", "schedulingPolicy", "priorityClass")
    if priority is not None:
        object_at(workload.template).setdefault("spec", {}).setdefault("priorityClassName", priority)
        workload.remarks.carried(
            "spec.runPolicy.schedulingPolicy.priorityClass", "spec.template.spec.priorityClassName"
        )
