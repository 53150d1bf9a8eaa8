"""A directory of checkpoints that the next pods of a run would not find."""

from collections.abc import Iterator
from posixpath import isabs, normpath
from typing import Final

from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding
from deepspeed_operator.api.untyped import Json, object_at, objects_at
from deepspeed_operator.job.checkpoint_path import checkpoint_path
from deepspeed_operator.job.failure_rules import policy_of
from deepspeed_operator.job.template import PodTemplate, pod_template

_FIX: Final = (
    "Mount a volume that outlives the pods there, such as a ReadWriteMany PersistentVolumeClaim, and save below its "
    "mountPath."
)
_OF_THE_POD: Final = ("emptyDir", "ephemeral")


def checkpoint_volume_findings(spec: DeepSpeedJobSpec) -> Iterator[Finding]:
    """Yield a warning where a new attempt would begin without what an earlier one has saved."""
    named = checkpoint_path(spec)
    if named is None or named.on_object_store or "$(" in named.path or not _may_begin_again(spec):
        return
    template = pod_template(spec)
    mount = _mount_of(template, named.path)
    name = mount.get("name") if mount is not None else None
    volume = next((each for each in template.volumes if each.get("name") == name), None) if mount else None
    where = _lost_with(volume) if mount is not None else "on no volume, but in the container's own file system"
    if where is not None:
        message = f"{named.path} is {where}: a new attempt, whose pods may be elsewhere, does not find what was saved."
        yield warning(named.field, Code.CHECKPOINT_NOT_KEPT, message, _FIX)


def _may_begin_again(spec: DeepSpeedJobSpec) -> bool:
    policy = policy_of(spec)
    return bool(policy.max_infrastructure_restarts or policy.max_restarts or policy.rules)


def _mount_of(template: PodTemplate, path: str) -> Json | None:
    """Return the mount that a path lies on; None if there is none."""
    if not isabs(path):
        return None
    target = normpath(path)
    mounts = [each for each in objects_at(template.trainer, "volumeMounts") if isinstance(each.get("mountPath"), str)]
    over = [each for each in mounts if _within(target, normpath(each["mountPath"]))]
    return max(over, key=lambda each: len(normpath(each["mountPath"])), default=None)


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")


def _lost_with(volume: Json | None) -> str | None:
    """Return what kind of volume it is, where its content stays with a pod or a node; None where it may be kept."""
    if volume is None:
        return None  # the API server refuses such a pod, in its own words
    kind = next((each for each in _OF_THE_POD if each in volume), None)
    if kind is not None:
        return f"on volume {volume.get('name')}, an {kind} volume, which ends with its pod"
    if "hostPath" in volume:
        directory = object_at(volume, "hostPath").get("path")
        return f"on volume {volume.get('name')}, the node's own {directory}, unless all nodes mount the same there"
    return None
