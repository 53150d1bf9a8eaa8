"""A pod template of another kind → one that a DeepSpeedJob may have."""

import re
from typing import Any, Final

from deepspeed_operator.api.names import ENV_PREFIX, GROUP, LABEL_MANAGED_BY
from deepspeed_operator.api.untyped import Json, list_at, object_at, objects_at
from deepspeed_operator.cli.imports.remarks import Remarks
from deepspeed_operator.cli.imports.script_context import OURS
from deepspeed_operator.job.accelerators import NVIDIA_GPU, known_accelerator

_POD: Final = {
    "restartPolicy": "a gang starts and ends as a whole; spec.failurePolicy says how often",
    "hostname": "the hostfile names every pod",
    "hostnameOverride": "the hostfile names every pod",
    "subdomain": "the job has a Service of its own, by which its pods find each other",
    "setHostnameAsFQDN": "the hostfile names every pod",
    "nodeName": "use nodeSelector or affinity, which the scheduler obeys",
    "activeDeadlineSeconds": "spec.lifecycle.activeDeadlineSeconds limits a run",
    "schedulingGates": "nothing would take them away",
}
_TRAINER: Final = {
    "terminationMessagePath": "the agent reports the cause of a failure there",
    "restartPolicy": "one container that starts anew cannot rejoin the other ranks",
    "restartPolicyRules": "one container that starts anew cannot rejoin the other ranks",
    "livenessProbe": "the agent watches the ranks; a probe of a server that is not there would end them",
    "readinessProbe": "a pod is ready when its ranks run",
    "startupProbe": "the agent has one, which makes the pod ready when its ranks run",
}
_OTHERS_LABELS: Final = (
    *("training.kubeflow.org/", "trainer.kubeflow.org/", "kubeflow.org/", "jobset.sigs.k8s.io/"),
    *("batch.kubernetes.io/", "leaderworkerset.sigs.k8s.io/", "volcano.sh/", "kueue.x-k8s.io/", f"{GROUP}/"),
)
_NOT_DEVICES: Final = (
    "hugepages-",
    "rdma/",
    "vpc.amazonaws.com/",
    "nvidia.com/hostdev",
    "nvidia.com/rdma",
    "k8s.io/",
    "networking.gke.io",
)
_WAITS: Final = re.compile(r"\b(until|while)\b.*\b(nslookup|getent|dig|ping|nc|host|ssh)\b", re.DOTALL)
_SSH_PORT: Final = 22


def cleaned(template: Json, trainer: Json, remarks: Remarks) -> None:
    """Take out of a template what the operator says of its pods, and what another controller's pods needed."""
    metadata = object_at(template, "metadata")
    for field in [each for each in metadata if each not in {"labels", "annotations"}]:
        metadata.pop(field)
        if field != "creationTimestamp":
            remarks.left_out(f"template.metadata.{field}", "the operator names and owns the pods")
    for place in ("labels", "annotations"):
        for name in [
            each for each in object_at(metadata, place) if each.startswith(_OTHERS_LABELS) or each == LABEL_MANAGED_BY
        ]:
            object_at(metadata, place).pop(name)
            remarks.left_out(f"template.metadata.{place}[{name}]", "it is another controller's")
        if not metadata.get(place):
            metadata.pop(place, None)
    if not metadata:
        template.pop("metadata", None)
    _without(object_at(template, "spec"), _POD, "template.spec", remarks)
    _without(trainer, _TRAINER, "the trainer container", remarks)
    _environment(trainer, remarks)
    _ports(trainer, remarks)
    for container in objects_at(template, "spec", "initContainers"):
        words = " ".join(str(word) for word in [*list_at(container, "command"), *list_at(container, "args")])
        if _WAITS.search(words):
            why = "it waits for a host, and no pod starts if that has the name of another controller's pod"
            remarks.warn(f"init container {container.get('name')}", f"{why}. Remove it: the agents wait for each other")
    rest = {key for key, value in object_at(template, "spec").items() if value and key != "containers"}
    if trainer or rest:
        remarks.carried(
            "template", "spec.template: " + ", ".join([*(["containers"] if trainer else []), *sorted(rest)])
        )


def _without(value: Json, reasons: dict[str, str], path: str, remarks: Remarks) -> None:
    for field, reason in reasons.items():
        found = value.pop(field, None)
        if found is not None and not (field == "restartPolicy" and found == "Never"):
            remarks.left_out(f"{path}.{field}", reason)


def _environment(trainer: Json, remarks: Remarks) -> None:
    kept: list[Any] = []
    for variable in list_at(trainer, "env"):
        name = str(object_at(variable).get("name"))
        if name in OURS:
            remarks.left_out(
                f"env {name}",
                "the agent tells it to the ranks, as it is in this run; what is set already would win over it",
            )
        elif name.startswith(ENV_PREFIX):
            remarks.left_out(f"env {name}", "names that begin so are the operator's")
        else:
            kept.append(variable)
    if "env" in trainer:
        trainer["env"] = kept
    if not kept:
        trainer.pop("env", None)


def _ports(trainer: Json, remarks: Remarks) -> None:
    ports = list_at(trainer, "ports")
    if ports:
        shown = ", ".join(str(object_at(port).get("containerPort")) for port in ports)
        remarks.left_out(
            "the trainer container.ports",
            f"{shown}: pods reach each other without, and the ranks meet on a port of the operator's",
        )
        trainer.pop("ports")


def without_accelerator(trainer: Json, remarks: Remarks) -> None:
    """Keep pods that had no accelerator on CPUs: a template that names none is given one."""
    resources = object_at(trainer, "resources")
    names = {*object_at(resources, "limits"), *object_at(resources, "requests")}
    if any(map(known_accelerator, names)) or list_at(resources, "claims"):
        return
    devices = sorted(name for name in names if "/" in name and not name.startswith(_NOT_DEVICES))
    if devices:
        remarks.warn(
            "resources",
            f"{', '.join(devices)}: not known as an accelerator; write spec.slotsPerNode, and whether DeepSpeed "
            "runs on it",
        )
    trainer["resources"] = {**resources, "limits": {**object_at(resources, "limits"), NVIDIA_GPU: 0}}
    remarks.changed(
        "resources",
        f"{NVIDIA_GPU}: 0, since the pods had no accelerator and a template without one is given GPUs; remove "
        "it to train on them",
    )


def with_environment(trainer: Json, environment: dict[str, str], remarks: Remarks, path: str) -> None:
    """Add variables to the trainer; what it has stays, as a variable of the container does under a script's export."""
    added = {name: value for name, value in environment.items() if name not in OURS}
    if not added:
        return
    env = [each for each in list_at(trainer, "env") if object_at(each).get("name") not in added]
    trainer["env"] = [*env, *({"name": name, "value": value} for name, value in added.items())]
    remarks.carried(path, f"the trainer container's env: {', '.join(added)}")
