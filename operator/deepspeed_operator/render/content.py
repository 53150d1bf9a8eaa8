"""The files that the attempt's ConfigMap carries into every pod."""

import json
from collections.abc import Iterable
from typing import Final

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.spec import DeepSpeedJobSpec, Launcher
from deepspeed_operator.api.status import World
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.job.accelerators import accelerator_of, default_resource, library_of
from deepspeed_operator.job.fabric.guard import preflight_bandwidth, required_fabric
from deepspeed_operator.job.fabric.profile import profile_of
from deepspeed_operator.job.ports import Ports
from deepspeed_operator.job.template import pod_template
from deepspeed_operator.render.network_variables import environment

PROTOCOL: Final = 1
DEFAULT_GRACE_SECONDS: Final = 30  # Kubernetes' own default


def hostfile(hosts: Iterable[str], world: World) -> str:
    """Write the hostfile: a line is a pod, in index order, which is DeepSpeed's node rank."""
    return "".join(f"{host} slots={world.slots_per_node}\n" for host in hosts)


def plan_file(
    job: DeepSpeedJob, attempt: int, world: World, *, ports: Ports, config_path: str | None, deepspeed: str | None
) -> str:
    """Write what the agent is to do."""
    spec, training = job.spec, job.spec.training
    plan: Json = {
        "protocol": PROTOCOL,
        "job": job.metadata.name,
        "namespace": job.metadata.namespace,
        "uid": job.metadata.uid,
        "attempt": attempt,
        "nodes": world.nodes,
        "slotsPerNode": world.slots_per_node,
        "launcher": training.launcher.value,
        "program": _program(spec),
        "args": training.args,
        "python": training.python,
        "configPath": config_path,
        "integration": training.integration.value,
        "files": training.files is not None,
        "deepspeedVersion": deepspeed,
        "environment": environment(spec, library_of(accelerator_of(spec, default_resource(world)))),
        "libraryPath": list(profile_of(spec).library_path),
        "agentPort": ports.agent,
        "masterPort": ports.master,
        "requiredFabric": required_fabric(spec),
        "preflightBandwidth": preflight_bandwidth(spec),
        "measure": spec.model is not None and training.launcher is Launcher.RANKS,
        "startupDeadlineSeconds": spec.startup_deadline_seconds,
        "terminationGraceSeconds": _grace_seconds(spec),
    }
    return json.dumps(plan, indent=2, ensure_ascii=False) + "\n"


def _program(spec: DeepSpeedJobSpec) -> Json:
    training = spec.training
    if training.script is not None:
        return {"kind": "script", "value": [training.script]}
    if training.module is not None:
        return {"kind": "module", "value": [training.module]}
    return {"kind": "command", "value": training.command or []}


def _grace_seconds(spec: DeepSpeedJobSpec) -> int:
    declared = pod_template(spec).pod.get("terminationGracePeriodSeconds")
    return declared if isinstance(declared, int) else DEFAULT_GRACE_SECONDS
