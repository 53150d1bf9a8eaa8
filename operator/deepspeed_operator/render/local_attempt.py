"""One attempt of a job on one machine, without Kubernetes: the pods' files and variables, for agents on loopback."""

import json
from collections.abc import Iterator
from dataclasses import replace

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import CONFIG_FILE, CONFIG_PATH, ENV_INDEX, ENV_PREFIX, HOSTFILE, LAUNCH_FILE
from deepspeed_operator.api.network import NetworkProfile
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.untyped import Json, objects_at, present
from deepspeed_operator.job.failure_rules import policy_of
from deepspeed_operator.job.image import declared_version
from deepspeed_operator.job.template import pod_template
from deepspeed_operator.render.attempt import Attempt
from deepspeed_operator.render.content import hostfile, launch_document
from deepspeed_operator.render.trainer_container import WORKSPACE_CONFIG

_KEPT_OF_POD = frozenset({"containers", "terminationGracePeriodSeconds"})
_PROFILES_HERE = frozenset({NetworkProfile.AUTO, NetworkProfile.TCP, NetworkProfile.NVLINK})
_KEPT_OF_TRAINER = frozenset({"name", "env"})


def loopback(index: int) -> str:
    """Return the address of the node with this index: Linux answers on all of 127.0.0.0/8."""
    high, low = divmod(index + 1, 256)
    return f"127.0.{high}.{low}"


def machine_files(attempt: Attempt, config_path: str) -> dict[str, str]:
    """Return what every agent reads; the configuration will be at `config_path`."""
    job, world, config = attempt.job, attempt.world, attempt.config_text
    document = launch_document(
        _without_replacements(job),
        attempt.attempt,
        world,
        ports=attempt.ports,
        config_path=None if config is None else config_path,
        deepspeed=declared_version(job.spec, attempt.installation),
    )
    if _joins_machines(job.spec):
        document = json.dumps({**json.loads(document), "environment": {}, "libraryPath": []}, indent=2) + "\n"
    files = {HOSTFILE: hostfile(map(loopback, range(world.nodes)), world), LAUNCH_FILE: document}
    return files if config is None else {**files, CONFIG_FILE: config}


def _without_replacements(job: DeepSpeedJob) -> DeepSpeedJob:
    """Return the job as one whose lost pods nobody replaces: there is no operator."""
    policy = policy_of(job.spec).model_copy(update={"replacement_deadline_seconds": 0})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"failure_policy": policy})})


def variables(attempt: Attempt) -> tuple[dict[str, str], list[str]]:
    """Return the trainer's variables that are literal values, and the names of those that need a cluster."""
    values: dict[str, str] = {}
    others: list[str] = []
    for variable in objects_at(_trainer(attempt), "env"):
        name, value = str(variable.get("name")), variable.get("value")
        if name.startswith(ENV_PREFIX):
            continue
        if "valueFrom" in variable or "$(" in str(value):
            others.append(name)
        else:
            values[name] = "" if value is None else str(value)
    return values, others


def ignored(spec: DeepSpeedJobSpec) -> list[str]:
    """Return the fields of the job that mean nothing without a cluster."""
    return list(_ignored(spec))


def _ignored(spec: DeepSpeedJobSpec) -> Iterator[str]:
    if spec.image is not None:
        yield "image"
    if spec.shared_memory is not None:
        yield "sharedMemory"
    if spec.suspend:
        yield "suspend"
    if spec.network is not None and spec.network.interface is not None:
        yield "network.interface"
    if _joins_machines(spec):
        yield "the settings of network.profile"
    if spec.training.config_path not in {CONFIG_PATH, WORKSPACE_CONFIG}:
        yield "training.configPath"
    template = pod_template(spec)
    yield from (f"template.spec.{field}" for field in present(template.pod) if field not in _KEPT_OF_POD)
    for container in template.containers:
        if container is not template.trainer:
            yield f"container {container.get('name')}"
    yield from (f"the trainer's {field}" for field in present(template.trainer) if field not in _KEPT_OF_TRAINER)


def _joins_machines(spec: DeepSpeedJobSpec) -> bool:
    """Whether the profile's variables name a fabric's plugin or interfaces, without which NCCL would not start."""
    return spec.network is not None and spec.network.profile not in _PROFILES_HERE


def _trainer(attempt: Attempt) -> Json:
    spec, network = attempt.job.spec, attempt.job.spec.network
    if network is not None and network.interface is not None:  # the pods'
        spec = spec.model_copy(update={"network": network.model_copy(update={"interface": None})})
    here = replace(attempt, job=attempt.job.model_copy(update={"spec": spec}))
    containers = here.pod(0)["spec"]["containers"]
    return next(each for each in containers if any(env["name"] == ENV_INDEX for env in each.get("env", [])))
