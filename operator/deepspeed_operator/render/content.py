"""The files that the attempt's ConfigMap carries into every pod."""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Final, cast

from deepspeed_operator.api.checkpoint import Checkpoint
from deepspeed_operator.api.failure_policy import FENCE_SECONDS
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.lifecycle import HangAction, Lifecycle
from deepspeed_operator.api.spec import DeepSpeedJobSpec, Launcher
from deepspeed_operator.api.status import World
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.job.accelerators import accelerator_of, default_resource, library_of
from deepspeed_operator.job.checkpoint_path import checkpoint_path
from deepspeed_operator.job.fabric.guard import preflight_bandwidth, required_fabric
from deepspeed_operator.job.fabric.profile import profile_of
from deepspeed_operator.job.ports import Ports
from deepspeed_operator.job.template import pod_template
from deepspeed_operator.render.network_variables import environment
from deepspeed_operator.render.policy_document import failure_policy

PROTOCOL: Final = 3  # docs/agent-protocol.md
_SHORT: Final = 80  # characters of a line
_WAITING: Final = ("python3", "-c", "import signal; signal.pause()")  # the agent itself needs no more of the image
DEFAULT_GRACE_SECONDS: Final = 30  # Kubernetes' own default


def hostfile(hosts: Iterable[str], world: World) -> str:
    """Write the hostfile: a line is a pod, in index order, which is DeepSpeed's node rank."""
    return "".join(f"{host} slots={world.slots_per_node}\n" for host in hosts)


def launch_document(
    job: DeepSpeedJob, attempt: int, world: World, *, ports: Ports, config_path: str | None, deepspeed: str | None
) -> str:
    """Write what the agent is to do. The agent that is delivered beside it reads every key, and no other."""
    spec, training = job.spec, job.spec.training
    document: Json = {
        "protocol": PROTOCOL,
        "job": job.metadata.name,
        "uid": job.metadata.uid,
        "attempt": attempt,
        "round": 1,  # the first of the attempt
        "nodes": world.nodes,
        "slotsPerNode": world.slots_per_node,
        "launcher": training.started_by.value,
        "program": _program(spec),
        "args": [] if training.debug else training.args,
        "python": training.python,
        "configPath": config_path,
        "integration": training.integration.value,
        "files": training.files is not None,
        "deepspeedVersion": deepspeed,
        "environment": environment(spec, library_of(accelerator_of(spec, default_resource(world)))),
        "libraryPath": list(profile_of(spec).library_path),
        "ports": {"agent": ports.agent, "preflight": ports.preflight, "masters": list(ports.masters)},
        "requiredFabric": required_fabric(spec),
        "preflightBandwidth": preflight_bandwidth(spec),
        "measure": spec.model is not None and training.started_by is Launcher.RANKS,
        "startupDeadlineSeconds": spec.startup_deadline_seconds,
        "successPolicy": spec.success_policy.value,
        "terminationGraceSeconds": _grace_seconds(spec),
        "fenceSeconds": FENCE_SECONDS,
        "failurePolicy": failure_policy(job, attempt),
        "checkpoint": _checkpoint(job),
        "hang": _hang(Lifecycle() if training.debug else spec.lifecycle or Lifecycle()),
        "reachedStep": (job.status.attempt.reached_step if job.status.attempt is not None else None) or 0,
    }
    return _written(document) + "\n"


def _program(spec: DeepSpeedJobSpec) -> Json:
    training = spec.training
    if training.debug:
        return {"kind": "command", "value": list(_WAITING)}
    if training.script is not None:
        return {"kind": "script", "value": [training.script]}
    if training.module is not None:
        return {"kind": "module", "value": [training.module]}
    return {"kind": "command", "value": training.command or []}


def _checkpoint(job: DeepSpeedJob) -> Json:
    """Where the run saves; what a field of the job does not say, an earlier attempt may have found."""
    named, run = checkpoint_path(job.spec), job.status.run
    since = int(datetime.fromisoformat(run.start_time).timestamp()) if run is not None else 0
    found = job.status.checkpoint.path if job.status.checkpoint is not None else None
    return {
        "path": named.path if named is not None else found,
        "declared": named is not None and named.declared,
        "repairLatest": (job.spec.checkpoint or Checkpoint()).repair_latest,
        "since": since,
        "conversionSeconds": conversion_seconds(job),
    }


def conversion_seconds(job: DeepSpeedJob) -> int:
    """Return how long rank 0's agent may take to make a checkpoint universal before ranks begin; 0: it makes none."""
    run = job.status.run
    converts = run is not None and run.elastic is not None and run.elastic.loads_universal
    return (job.spec.checkpoint or Checkpoint()).conversion_deadline_seconds if converts else 0


def _hang(lifecycle: Lifecycle) -> Json:
    """After how many seconds ranks that make no step hang; null: as they have taught."""
    return {
        "restart": lifecycle.hang is HangAction.RESTART,
        "firstStepSeconds": lifecycle.first_step_deadline_seconds,
        "progressSeconds": lifecycle.progress_deadline_seconds,
        "checkpointSeconds": lifecycle.checkpoint_deadline_seconds,
    }


def _grace_seconds(spec: DeepSpeedJobSpec) -> int:
    declared = pod_template(spec).pod.get("terminationGracePeriodSeconds")
    return declared if isinstance(declared, int) else DEFAULT_GRACE_SECONDS


def _written(value: object, indent: str = "\n") -> str:
    """Write JSON for people, too: what is short, or has only numbers, stands in one line."""
    short = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or (len(short) <= _SHORT and indent != "\n"):
        return short
    inner = f"{indent}  "
    if isinstance(value, list):
        items = cast("list[object]", value)
        if not any(isinstance(each, dict) for each in items):
            return short
        return f"[{inner}{f',{inner}'.join(_written(each, inner) for each in items)}{indent}]"
    fields = cast("dict[str, object]", value)
    written = (f"{json.dumps(key, ensure_ascii=False)}: {_written(each, inner)}" for key, each in fields.items())
    return f"{{{inner}{f',{inner}'.join(written)}{indent}}}"
