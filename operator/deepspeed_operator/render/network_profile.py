"""What a profile adds to a pod. The template's own word on each point stays, and nothing of it is taken away."""

from typing import Any

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.untyped import Json, list_at, object_at, objects_at
from deepspeed_operator.job.fabric.device_resources import missing_resources
from deepspeed_operator.job.fabric.profile import Profile, profile_of
from deepspeed_operator.job.template import pod_template


def trainer_for(spec: DeepSpeedJobSpec, container: Json) -> Json:
    """Return the trainer container with the fabric's devices, capabilities and mounts."""
    fabric = profile_of(spec)
    added: Json = {}
    if resources := missing_resources(fabric, container):
        limits = {**object_at(container, "resources", "limits"), **resources}
        added["resources"] = {**object_at(container, "resources"), "limits": limits}
    if mounts := _mounts(fabric, container):
        added["volumeMounts"] = [*list_at(container, "volumeMounts"), *mounts]
    security = _security(fabric, object_at(container, "securityContext"))
    if security != object_at(container, "securityContext"):
        added["securityContext"] = security
    return {**container, **added}


def pod_for(spec: DeepSpeedJobSpec, pod: Json) -> Json:
    """Return the pod's spec with the fabric's sidecars, volumes, tolerations and network."""
    fabric = profile_of(spec)
    added: Json = {}
    there = {each.get("name") for each in [*objects_at(pod, "initContainers"), *pod_template(spec).containers]}
    if sidecars := [each for each in fabric.sidecars if each["name"] not in there]:
        added["initContainers"] = [*list_at(pod, "initContainers"), *sidecars]
    named = {volume.get("name") for volume in objects_at(pod, "volumes")}
    if volumes := [{"name": each.name, **each.source} for each in fabric.volumes if each.name not in named]:
        added["volumes"] = [*list_at(pod, "volumes"), *volumes]
    if fabric.tolerations:
        own = list_at(pod, "tolerations")
        added["tolerations"] = [*own, *(each for each in fabric.tolerations if each not in own)]
    if fabric.host_network and "hostNetwork" not in pod:
        added["hostNetwork"] = True
    return {**pod, **added}


def annotations_for(spec: DeepSpeedJobSpec) -> dict[str, str]:
    return profile_of(spec).annotations


def _mounts(fabric: Profile, container: Json) -> list[Json]:
    taken = {mount.get("mountPath") for mount in objects_at(container, "volumeMounts")}
    return [
        {"name": volume.name, "mountPath": volume.mount_path}
        for volume in fabric.volumes
        if volume.mount_path is not None and volume.mount_path not in taken
    ]


def _security(fabric: Profile, own: Json) -> Json:
    if own.get("privileged"):
        return own  # it has every capability
    if fabric.privileged and "privileged" not in own:
        return {**own, "privileged": True}
    capabilities = object_at(own, "capabilities")
    kept: list[Any] = list_at(capabilities, "add")
    dropped = {*map(str, list_at(capabilities, "drop"))}
    missing = [name for name in fabric.capabilities if name not in kept and name not in dropped]
    if not missing or "ALL" in kept:
        return own
    return {**own, "capabilities": {**capabilities, "add": [*kept, *missing]}}
