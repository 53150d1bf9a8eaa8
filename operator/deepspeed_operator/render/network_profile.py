"""What a profile adds to a pod. The template's own word on each point stays, and nothing of it is taken away."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepspeed_operator.api.untyped import Json, list_at, object_at, objects_at
from deepspeed_operator.job.fabric.device_resources import missing_resources
from deepspeed_operator.job.fabric.profile import Profile
from deepspeed_operator.job.template import PodTemplate
from deepspeed_operator.render.contributor import Contributor


@dataclass(frozen=True, slots=True)
class Fabric(Contributor):
    """Adds the fabric's sidecars, volumes, tolerations and network, and its devices, mounts and capabilities."""

    profile: Profile
    template: PodTemplate

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.profile.annotations

    def add_to_pod(self, pod: Json) -> Json:
        added: Json = {}
        there = {each.get("name") for each in [*objects_at(pod, "initContainers"), *self.template.containers]}
        if sidecars := [each for each in self.profile.sidecars if each["name"] not in there]:
            added["initContainers"] = [*list_at(pod, "initContainers"), *sidecars]
        named = {volume.get("name") for volume in objects_at(pod, "volumes")}
        if volumes := [{"name": each.name, **each.source} for each in self.profile.volumes if each.name not in named]:
            added["volumes"] = [*list_at(pod, "volumes"), *volumes]
        if self.profile.tolerations:
            own = list_at(pod, "tolerations")
            added["tolerations"] = [*own, *(each for each in self.profile.tolerations if each not in own)]
        if self.profile.host_network and "hostNetwork" not in pod:
            added["hostNetwork"] = True
        return {**pod, **added}

    def add_to_trainer(self, trainer: Json, pod: Json) -> Json:  # noqa: ARG002
        added: Json = {}
        if resources := missing_resources(self.profile, trainer):
            limits = {**object_at(trainer, "resources", "limits"), **resources}
            added["resources"] = {**object_at(trainer, "resources"), "limits": limits}
        if mounts := _mounts(self.profile, trainer):
            added["volumeMounts"] = [*list_at(trainer, "volumeMounts"), *mounts]
        security = _security(self.profile, object_at(trainer, "securityContext"))
        if security != object_at(trainer, "securityContext"):
            added["securityContext"] = security
        return {**trainer, **added}


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
