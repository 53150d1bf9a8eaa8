"""The pod: the user's template, with what makes it a member of a gang."""

from collections.abc import Sequence
from dataclasses import dataclass

from deepspeed_operator.api.names import (
    VOLUME_FILES,
    VOLUME_JOB,
    VOLUME_SHARED_MEMORY,
    VOLUME_TEMPORARY,
    VOLUME_WORKSPACE,
)
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.untyped import Json, list_at, objects_at
from deepspeed_operator.job.template import pod_template
from deepspeed_operator.render.contributor import Contributor

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
AGENT_KEY = "agent"  # a zip archive, which Python runs like a directory

_LOST_NODE_SECONDS = 30
_LOST_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@dataclass(frozen=True, slots=True)
class GangMembership(Contributor):
    """Makes the pod a member of its gang: it ends when its ranks do, and peers find it by name.

    `job_name` is the job's and its Service's, `volumes` what pod_volumes returned.
    """

    job_name: str
    volumes: Sequence[Json]

    def add_to_pod(self, pod: Json) -> Json:
        added: Json = {
            **pod,
            "restartPolicy": "Never",
            "subdomain": self.job_name,
            "tolerations": [*list_at(pod, "tolerations"), *_tolerations(pod)],
            "volumes": [*list_at(pod, "volumes"), *self.volumes],
        }
        added.setdefault("enableServiceLinks", False)
        if not (pod.get("serviceAccountName") or pod.get("serviceAccount")):
            # Training asks nothing of the API server; who names an account means to use it.
            added.setdefault("automountServiceAccountToken", False)
        return added


def pod_volumes(spec: DeepSpeedJobSpec, content: str) -> list[Json]:
    """Return the volumes we add; `content` names the attempt's ConfigMap and Secret."""
    # Every user of the pod may read it, as by default: ranks run as whom the image or its template says.
    volumes: list[Json] = [
        {"name": VOLUME_JOB, "projected": {"sources": [{kind: {"name": content}} for kind in ("configMap", "secret")]}}
    ]
    if spec.training.files is not None:
        volumes.append({"name": VOLUME_FILES, "configMap": {"name": spec.training.files.config_map}})
        volumes.append({"name": VOLUME_WORKSPACE, "emptyDir": {}})
    template = pod_template(spec)
    if not template.mounts_shared_memory:
        limit = spec.shared_memory or template.limits.get("memory")
        size = {} if limit is None else {"sizeLimit": limit}
        volumes.append({"name": VOLUME_SHARED_MEMORY, "emptyDir": {"medium": "Memory", **size}})
    if template.lacks_temporary:
        volumes.append({"name": VOLUME_TEMPORARY, "emptyDir": {}})
    return volumes


def place_trainer(spec: DeepSpeedJobSpec, trainer: Json) -> list[Json]:
    """Return the template's containers with the finished trainer in its place."""
    template = pod_template(spec)
    return [trainer if each is template.trainer else each for each in template.containers] or [trainer]


def _tolerations(pod: Json) -> list[Json]:
    """Kubernetes would give a lost node five minutes; a gang that waits for a dead peer holds its GPUs all along."""
    declared = objects_at(pod, "tolerations")
    return [
        {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _LOST_NODE_SECONDS}
        for taint in _LOST_NODE_TAINTS
        if not any(_tolerates(toleration, taint) for toleration in declared)
    ]


def _tolerates(toleration: Json, taint: str) -> bool:
    everything = not toleration.get("key") and toleration.get("operator") == "Exists"
    return (everything or toleration.get("key") == taint) and toleration.get("effect") in {None, "", "NoExecute"}
