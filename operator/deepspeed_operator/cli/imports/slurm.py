"""A batch script for SLURM: its #SBATCH lines, and what it runs."""

import re
from typing import Final

from deepspeed_operator.api.untyped import Json
from deepspeed_operator.cli.imports.launcher_options import number
from deepspeed_operator.cli.imports.remarks import Remarks
from deepspeed_operator.cli.imports.workload import Workload

_DIRECTIVE: Final = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)
_SHORT: Final = {
    "N": "nodes",
    "n": "ntasks",
    "J": "job-name",
    "t": "time",
    "o": "output",
    "e": "error",
    "p": "partition",
} | {
    "A": "account",
    "c": "cpus-per-task",
    "G": "gpus",
    "a": "array",
    "q": "qos",
    "C": "constraint",
    "w": "nodelist",
    "x": "exclude",
    "D": "chdir",
    "d": "dependency",
}
_OF_THE_CLUSTER: Final = {
    "partition": "nodeSelector, affinity and tolerations of spec.template choose nodes",
    "constraint": "nodeSelector and affinity of spec.template choose nodes",
    "nodelist": "nodeSelector and affinity of spec.template choose nodes",
    "exclude": "nodeSelector and affinity of spec.template choose nodes",
    "account": "the namespace's quota is who pays",
    "qos": "priorityClassName of spec.template is the like of it",
    "output": "kubectl logs has what the ranks print",
    "error": "kubectl logs has what the ranks print",
    "open-mode": "kubectl logs has what the ranks print",
    "exclusive": "a pod with all GPUs of a node has it to itself",
    "mail-type": "watch the job, or alert by its metrics",
    "mail-user": "watch the job, or alert by its metrics",
    "requeue": "failures of nodes start the ranks again anyway: spec.failurePolicy",
    "no-requeue": "spec.failurePolicy.maxInfrastructureRestarts: 0 is the like of it",
    "signal": "terminationGracePeriodSeconds of spec.template is the time to save; ranks get SIGTERM",
    "dependency": "a workflow's to say",
    "hint": "the kubelet places CPUs",
    "wait-all-nodes": "the agents wait for each other",
    "threads-per-core": "the kubelet places CPUs",
    "distribution": "the scheduler places pods",
    "comment": "write an annotation",
    "chdir": "a directory of that cluster; workingDir of the trainer container is the like of it",
    "mincpus": "the trainer container's resources say it",
}


def slurm_script(text: str, name: str | None) -> Workload:
    """Read a batch script; `name`: that of its file, None for standard input."""
    remarks = Remarks()
    given = directives(text)
    workload = Workload(
        "SLURM script",
        given.pop("job-name", None) or name,
        None,
        {},
        {},
        remarks,
        path="script",
        script=text,
        batch=True,
    )
    least, _, most = given.pop("nodes", "").partition("-")
    tasks, per_node = number(given.pop("ntasks", None)), number(given.pop("ntasks-per-node", None))
    # Without it sbatch's own options may say it; with other directives it is one.
    said = number(most or least) or _spread(tasks, per_node, given, remarks) or (1 if given else None)
    nodes = said or 1
    if tasks is not None and per_node is None:
        per_node = max(tasks // nodes, 1)
    gpus = _gpus(given, nodes, per_node or 1)
    workload.nodes = said
    if least:
        remarks.carried("--nodes", f"spec.nodes: {nodes}")
    resources = _resources(given, gpus, per_node or 1, remarks)
    if resources:
        workload.template = {"spec": {"containers": [{"name": "trainer", "resources": resources}]}}
    if said is not None:
        _variables(workload, nodes, per_node or 1, gpus)
    workload.slots = per_node if per_node not in {None, 1} else None
    seconds = _seconds(given.pop("time", ""))
    if seconds:
        workload.spec["lifecycle"] = {"activeDeadlineSeconds": seconds}
        remarks.carried(
            "--time", f"spec.lifecycle.activeDeadlineSeconds: {seconds}, of the time in which the ranks run"
        )
    if "array" in given:
        remarks.warn("--array", f"{given.pop('array')}: this is one job; make one of another name for each index")
    for option, value in given.items():
        remarks.left_out(
            f"--{option}",
            f"{value + ': ' if value else ''}{_OF_THE_CLUSTER.get(option, 'nothing in a DeepSpeedJob is like it')}",
        )
    remarks.warn(
        "image",
        "a batch script has none: write spec.image, with the software that the script loads; else it is the "
        "operator's own worker image",
    )
    remarks.warn(
        "files",
        "scripts, data and checkpoints lie on that cluster's file system: mount volumes by spec.template where "
        "the paths are the same",
    )
    return workload


def directives(text: str) -> dict[str, str]:
    """Return the options of the #SBATCH lines, by their long names; the last of each counts."""
    found: dict[str, str] = {}
    for line in _DIRECTIVE.findall(text):
        words = re.sub(r"\s#.*$", "", line).split()
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            option, equals, value = word.lstrip("-").partition("=")
            if not word.startswith("--") and word.startswith("-"):
                option, value, equals = word[1:2], word[2:].lstrip("="), word[2:]
            if not equals and at < len(words) and not words[at].startswith("-"):
                value = words[at]
                at += 1
            found[_SHORT.get(option, option)] = value.strip("'\"")
    return found


def _spread(tasks: int | None, per_node: int | None, given: dict[str, str], remarks: Remarks) -> int | None:
    """Return how many nodes the tasks take where only their number is given; None where SLURM chooses."""
    each = per_node or _gpus({name: given[name] for name in ("gpus-per-node", "gres") if name in given}, 1, 1)
    if tasks is None or tasks in {1, each}:
        return None
    if each is None or tasks % each:
        remarks.warn("--ntasks", f"{tasks} tasks, and on how many nodes, SLURM chooses: here one; say it by --nodes")
        return None
    if tasks // each > 1:
        remarks.carried("--ntasks", f"{tasks} tasks, {each} a node: spec.nodes: {tasks // each}")
    return tasks // each


def _gpus(given: dict[str, str], nodes: int, tasks: int) -> int | None:
    """Return the GPUs of a node, of whichever option says it first."""
    found: int | None = None
    for option, share in (("gpus-per-node", 1.0), ("gres", 1.0), ("gpus-per-task", float(tasks)), ("gpus", 1 / nodes)):
        value = given.pop(option, None)
        if value is None or (option == "gres" and "gpu" not in value):
            continue
        found = found or max(int(_counted(value, of_any=option == "gres") * share), 1)
    return found


def _counted(value: str, *, of_any: bool) -> int:
    """Return how many GPUs a list says, a kind without a number is one; `of_any`: it is one of any resources."""
    entries = [each.split(":") for each in re.sub(r"\([^)]*\)", "", value).split(",")]
    counts = [number(entry[-1]) for entry in entries if not of_any or entry[0] == "gpu"]
    return sum(1 if count is None else count for count in counts)


def _resources(given: dict[str, str], gpus: int | None, tasks: int, remarks: Remarks) -> Json:
    limits: Json = {}
    requests: Json = {}
    if gpus is not None:
        limits["nvidia.com/gpu"] = gpus
        remarks.carried("GPUs", f"{gpus} a node: the trainer container's limit of nvidia.com/gpu")
    cpus = number(given.pop("cpus-per-task", None)) or number(given.pop("cpus-per-gpu", None))
    if cpus is not None:
        requests["cpu"] = cpus * tasks
        remarks.carried("CPUs", f"{cpus * tasks} a node: the trainer container's request")
    memory = re.fullmatch(r"(\d+)([KMGT]?)B?", given.pop("mem", ""), re.IGNORECASE)
    if memory is not None and memory[1] != "0":
        requests["memory"] = f"{memory[1]}{(memory[2] or 'M').upper()}i"
        remarks.carried("--mem", f"the trainer container's request of {requests['memory']}")
    return {key: value for key, value in (("limits", limits), ("requests", requests)) if value}


def _variables(workload: Workload, nodes: int, tasks: int, gpus: int | None) -> None:
    """Say what SLURM's variables are here; a task is a pod, or a rank where a node has several."""
    rank, local = ("$(NODE_RANK)", "0") if tasks == 1 else ("$(RANK)", "$(LOCAL_RANK)")
    values = workload.variables.values
    for name in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"):
        values[name] = str(nodes)
    values |= {
        "SLURM_NTASKS": str(nodes * tasks),
        "SLURM_NPROCS": str(nodes * tasks),
        "SLURM_NTASKS_PER_NODE": str(tasks),
    }
    values |= {
        "SLURM_PROCID": rank,
        "SLURM_LOCALID": local,
        "SLURM_NODEID": "$(NODE_RANK)",
        "SLURM_TASKS_PER_NODE": str(tasks),
    }
    if gpus is not None:
        values |= {"SLURM_GPUS_ON_NODE": str(gpus), "SLURM_GPUS_PER_NODE": str(gpus)}
    name = workload.name or "imported"
    values |= {"SLURM_JOB_NAME": name, "SLURM_JOB_ID": name, "SLURM_JOBID": name}
    workload.joined = True


def _seconds(text: str) -> int | None:
    """Return the seconds of minutes, minutes:seconds, h:m:s, days-hours, d-h:m or d-h:m:s."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in parts) or (dash and not days.isdecimal()):
        return None
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, minutes, seconds = 0, *(*numbers, 0)[:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def command_line(text: str) -> Workload:
    """Read a command line, or a script of them that belongs to no batch system."""
    remarks = Remarks()
    workload = Workload("command line", None, None, {}, {}, remarks, path="command", script=text)
    remarks.warn("image", "a command line has none: write spec.image; else it is the operator's own worker image")
    return workload
