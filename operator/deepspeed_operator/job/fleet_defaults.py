"""What a job gets of the platform team's defaults: what it leaves open, and nothing that it says itself."""

from collections.abc import Iterator
from typing import Any, Final, TypeVar

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.failure_policy import FailurePolicy
from deepspeed_operator.api.fleet import JobDefaults, RunDefaults
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.network import Network
from deepspeed_operator.api.queueing import JobScheduling, Toleration
from deepspeed_operator.api.untyped import Json, list_at, object_at, present
from deepspeed_operator.job.template import POD, PodTemplate, pod_template

Model = TypeVar("Model", bound=ApiModel)
_PATHS: Final = {
    "image": "spec.image",
    "shared_memory": "spec.sharedMemory",
    "node_selector": f"{POD}.nodeSelector",
    "tolerations": f"{POD}.tolerations",
    "priority_class_name": f"{POD}.priorityClassName",
    "queue_name": "spec.scheduling.queueName",
}


def with_defaults(job: DeepSpeedJob, defaults: JobDefaults) -> tuple[DeepSpeedJob, RunDefaults | None]:
    """Return the job as if its author had written what it lacks of the defaults, and that; None where it lacks nothing.

    The job's own word stays: lists get further items, maps further keys.
    """
    lacking = present(dict(_lacking(job, defaults)))
    if not lacking:
        return job, None
    added = RunDefaults.model_construct(**lacking, paths=[])
    return _with(job, added), added.model_copy(update={"paths": [*_paths(added)]})


def _lacking(job: DeepSpeedJob, defaults: JobDefaults) -> Iterator[tuple[str, Any]]:
    """Yield by field what the job leaves open; None for what it says."""
    spec, template = job.spec, pod_template(job.spec)
    if not (spec.image or template.trainer.get("image")):
        yield "image", defaults.image
    if spec.shared_memory is None and not template.mounts_shared_memory:
        yield "shared_memory", defaults.shared_memory
    if job.queue_name is None:
        yield "queue_name", defaults.queue_name
    network = defaults.network
    if network is not None and spec.nodes == 1:  # nothing of it crosses a fabric, whose devices not every node has
        network = network.model_copy(update={"profile": None})
    yield "network", _left_open(network, spec.network)
    yield "failure_policy", _left_open(defaults.failure_policy, spec.failure_policy)
    yield from _lacking_of_template(template, defaults)


def _lacking_of_template(template: PodTemplate, defaults: JobDefaults) -> Iterator[tuple[str, Any]]:
    pod = present(template.written or {}).get("spec", {})
    if not isinstance(pod, dict):
        return  # judging it says so
    own = present(template.pod)
    if "priorityClassName" not in own:
        yield "priority_class_name", defaults.priority_class_name
    if isinstance(own.get("nodeSelector", {}), dict):
        labels = object_at(own, "nodeSelector")
        missing = {key: value for key, value in (defaults.node_selector or {}).items() if key not in labels}
        yield "node_selector", missing or None
    if isinstance(own.get("tolerations", []), list):
        tolerations = list_at(own, "tolerations")
        yield "tolerations", [each for each in defaults.tolerations or () if _written(each) not in tolerations] or None


def _left_open(defaults: Model | None, own: ApiModel | None) -> Model | None:
    """Return what the defaults have for fields that the job's own object does not name; None for nothing."""
    named = own.model_fields_set if own is not None else frozenset[str]()
    left = present({field: value for field, value in defaults or () if field not in named})
    return type(defaults).model_construct(**left) if defaults is not None and left else None


def _with(job: DeepSpeedJob, added: JobDefaults) -> DeepSpeedJob:
    spec = job.spec
    fields: Json = {"image": added.image, "shared_memory": added.shared_memory}
    if added.network is not None:
        fields["network"] = _filled(spec.network or Network(), added.network)
    if added.failure_policy is not None:
        fields["failure_policy"] = _filled(spec.failure_policy or FailurePolicy(), added.failure_policy)
    if added.queue_name is not None:
        own = spec.scheduling or JobScheduling()
        fields["scheduling"] = own.model_copy(update={"queue_name": added.queue_name})
    own_pod = pod_template(spec).pod
    pod = present({"priorityClassName": added.priority_class_name})
    if added.node_selector is not None:
        pod["nodeSelector"] = {**object_at(own_pod, "nodeSelector"), **added.node_selector}
    if added.tolerations is not None:
        pod["tolerations"] = [*list_at(own_pod, "tolerations"), *map(_written, added.tolerations)]
    if pod:
        fields["template"] = {**(spec.template or {}), "spec": {**own_pod, **pod}}
    return job.model_copy(update={"spec": spec.model_copy(update=present(fields))})


def _filled(own: Model, added: ApiModel) -> Model:
    return own.model_copy(update=present(dict(added)))


def _paths(added: RunDefaults) -> Iterator[str]:
    """Yield the fields of spec that have these values."""
    yield from (path for field, path in _PATHS.items() if getattr(added, field) is not None)
    for parent, part in (("network", added.network), ("failurePolicy", added.failure_policy)):
        if part is not None:
            yield from (f"spec.{parent}.{field}" for field in part.model_dump(by_alias=True, exclude_none=True))


def _written(toleration: Toleration) -> Json:
    return toleration.model_dump(by_alias=True, exclude_none=True)
