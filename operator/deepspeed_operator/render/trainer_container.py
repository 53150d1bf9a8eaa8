"""The trainer container: the user's, with what makes it run the agent."""

from typing import Final

from deepspeed_operator.api.attempt_status import Replacement
from deepspeed_operator.api.names import (
    AGENT,
    CONFIG_FILE,
    CONFIG_PATH,
    ENV_ATTEMPT,
    ENV_FENCED,
    ENV_INDEX,
    ENV_JOB_UID,
    ENV_NODE,
    ENV_POD,
    ENV_POD_UID,
    ENV_REPLACEMENT,
    FILES_DIRECTORY,
    JOB_DIRECTORY,
    LABEL_ATTEMPT,
    LABEL_JOB_UID,
    SHARED_MEMORY,
    TEMPORARY,
    TRAINER,
    VOLUME_FILES,
    VOLUME_JOB,
    VOLUME_SHARED_MEMORY,
    VOLUME_TEMPORARY,
    VOLUME_WORKSPACE,
    WORKSPACE,
)
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import World
from deepspeed_operator.api.untyped import Json, list_at, object_at, present
from deepspeed_operator.job.accelerators import CPU, accelerator_of, default_resource, library_of, names_accelerator
from deepspeed_operator.job.template import PodTemplate, pod_template
from deepspeed_operator.render.network_variables import chosen_variables

_AFTER_THE_DEADLINE: Final = 60  # when the agent has ended
_NEVER: Final = 2**31 - 1  # failures in a row, after which the kubelet would end the container
# Without the image's site modules, of which the agent needs none, it begins in a third of the time.
AGENT_COMMAND = ("python3", "-S", "-u", AGENT)
# The agent copies the configuration beside the user's files, so nothing needs to be mounted there.
WORKSPACE_CONFIG = f"{WORKSPACE}/{CONFIG_FILE}"


def trainer_container(
    spec: DeepSpeedJobSpec, image: str, world: World, *, agent_port: int, has_config: bool, host_network: bool
) -> Json:
    """Return the trainer container without the pod's index. What the template says stays; ours is appended.

    `has_config`: whether the attempt has a ds_config.json; `host_network`: whether the pod has its node's network.
    """
    template = pod_template(spec)
    written = present(template.trainer)
    default = default_resource(world)
    container: Json = {"name": TRAINER, **written, "image": image}
    if written.get("command"):
        container["args"] = list(AGENT_COMMAND)
    else:
        container["command"] = list(AGENT_COMMAND)
    network = chosen_variables(spec, library_of(accelerator_of(spec, default)))
    chosen = [{"name": name, "value": value} for name, value in network.items()]
    container["env"] = [*list_at(written, "env"), *chosen, *_downward_variables()]
    container["volumeMounts"] = [*list_at(written, "volumeMounts"), *_mounts(spec, template, has_config)]
    if not names_accelerator(template) and default != CPU:
        limits = {**template.limits, default: str(world.slots_per_node)}
        container["resources"] = {**object_at(written, "resources"), "limits": limits}
    container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    container.setdefault("startupProbe", _startup_probe(agent_port, spec.startup_deadline_seconds))
    if host_network:
        # Two pods of a job that shared a node would want the same port of it: the scheduler keeps them apart.
        port = {"containerPort": agent_port, "hostPort": agent_port, "protocol": "TCP"}
        container["ports"] = [*list_at(written, "ports"), port]
    return container


def with_index(container: Json, index: int, replacement: Replacement | None = None) -> Json:
    """Return the trainer container of the pod with this index, which is how we find the trainer in a pod.

    `replacement`: which one it is; None for a pod that the attempt began with.
    """
    env = {ENV_INDEX: str(index)}
    if replacement is not None:
        env |= {ENV_REPLACEMENT: str(replacement.number), ENV_FENCED: str(replacement.fenced).lower()}
    return {**container, "env": [*container["env"], *({"name": name, "value": env[name]} for name in env)]}


def _downward_variables() -> list[Json]:
    labels = {ENV_JOB_UID: LABEL_JOB_UID, ENV_ATTEMPT: LABEL_ATTEMPT}
    fields = {ENV_POD: "metadata.name", ENV_POD_UID: "metadata.uid", ENV_NODE: "spec.nodeName"}
    fields |= {name: f"metadata.labels['{label}']" for name, label in labels.items()}
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]


def _mounts(spec: DeepSpeedJobSpec, template: PodTemplate, has_config: bool) -> list[Json]:
    mounts: list[Json] = [{"name": VOLUME_JOB, "mountPath": JOB_DIRECTORY, "readOnly": True}]
    if spec.training.files is not None:
        mounts.append({"name": VOLUME_FILES, "mountPath": FILES_DIRECTORY, "readOnly": True})
        mounts.append({"name": VOLUME_WORKSPACE, "mountPath": WORKSPACE})
    path = spec.training.config_path
    copied = spec.training.files is not None and path == WORKSPACE_CONFIG
    if has_config and path != CONFIG_PATH and not copied:
        mounts.append({"name": VOLUME_JOB, "mountPath": path, "subPath": CONFIG_FILE, "readOnly": True})
    if not template.mounts_shared_memory:
        mounts.append({"name": VOLUME_SHARED_MEMORY, "mountPath": SHARED_MEMORY})
    if template.lacks_temporary:
        mounts.append({"name": VOLUME_TEMPORARY, "mountPath": TEMPORARY})
    return mounts


def _startup_probe(agent_port: int, deadline: int) -> Json:
    """Return the probe that makes the pod ready when its ranks run, and never ends it.

    The agent answers when they do: a probe that fails meanwhile would be a Warning event of a healthy start. Nothing is
    probed afterwards, so that neither a busy node makes a gang flap nor its end looks like a failure.
    """
    return {
        "httpGet": {"path": "/readyz", "port": agent_port},
        "initialDelaySeconds": 1,  # by then the agent listens
        "periodSeconds": 1,
        "timeoutSeconds": deadline + _AFTER_THE_DEADLINE,
        "failureThreshold": _NEVER,
    }
