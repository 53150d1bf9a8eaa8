"""The pod: the user's template, with what makes it a member of a gang."""

from deepspeed_operator.api.names import (
    LABEL_ATTEMPT,
    LABEL_JOB_UID,
    VOLUME_FILES,
    VOLUME_JOB,
    VOLUME_SHARED_MEMORY,
    VOLUME_TEMPORARY,
    VOLUME_WORKSPACE,
)
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.untyped import Json, list_at, objects_at, present
from deepspeed_operator.job.template import pod_template
from deepspeed_operator.render.network_profile import pod_for

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
AGENT_KEY = "agent"  # a zip archive, which Python runs like a directory

_LOST_NODE_SECONDS = 30
_LOST_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def pod_spec(spec: DeepSpeedJobSpec, job_name: str, labels: dict[str, str], volumes: list[Json]) -> Json:
    """Return the pod's spec without the trainer container and hostname. What the template says stays."""
    template = pod_for(spec, present(pod_template(spec).pod))
    rendered: Json = {
        **template,
        "restartPolicy": "Never",
        "subdomain": job_name,
        "tolerations": [*list_at(template, "tolerations"), *_tolerations(template)],
        "volumes": [*list_at(template, "volumes"), *volumes],
    }
    rendered.setdefault("enableServiceLinks", False)
    if not (template.get("serviceAccountName") or template.get("serviceAccount")):
        # Training asks nothing of the API server; who names an account means to use it.
        rendered.setdefault("automountServiceAccountToken", False)
    rendered.setdefault("topologySpreadConstraints", [_spread_over_nodes(labels)])
    if rendered.get("hostNetwork"):
        # Else the node's own resolver is asked, which does not know the hostfile's names.
        rendered.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    return rendered


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


def _tolerations(template: Json) -> list[Json]:
    """Kubernetes would give a lost node five minutes; a gang that waits for a dead peer holds its GPUs all along."""
    declared = objects_at(template, "tolerations")
    return [
        {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _LOST_NODE_SECONDS}
        for taint in _LOST_NODE_TAINTS
        if not any(_tolerates(toleration, taint) for toleration in declared)
    ]


def _tolerates(toleration: Json, taint: str) -> bool:
    everything = not toleration.get("key") and toleration.get("operator") == "Exists"
    return (everything or toleration.get("key") == taint) and toleration.get("effect") in {None, "", "NoExecute"}


def _spread_over_nodes(labels: dict[str, str]) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {label: labels[label] for label in (LABEL_JOB_UID, LABEL_ATTEMPT)}},
    }
