"""Paths in the trainer container that are ours, and those that a user may not cover."""

from collections.abc import Iterator
from posixpath import normpath

from deepspeed_operator.api.finding import Code, error
from deepspeed_operator.api.names import (
    CONFIG_PATH,
    FILES_DIRECTORY,
    JOB_DIRECTORY,
    OUR_VOLUMES,
    SHARED_MEMORY,
    WORKSPACE,
)
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding
from deepspeed_operator.api.untyped import list_at, object_at
from deepspeed_operator.job.template import POD, PodTemplate, pod_template


def mount_findings(spec: DeepSpeedJobSpec) -> list[Finding]:
    """Return volumes, mounts and a configPath that would cover what is ours, or that we would cover."""
    template = pod_template(spec)
    return [
        *_volume_names(template),
        *_covered_by_mounts(spec, template),
        *_config_path(spec),
        *_shared_memory_twice(spec, template),
    ]


def _volume_names(template: PodTemplate) -> Iterator[Finding]:
    for position, volume in enumerate(list_at(template.pod, "volumes")):
        name = object_at(volume).get("name")
        if name in OUR_VOLUMES:
            path = f"{POD}.volumes[{position}].name"
            yield error(path, Code.RESERVED_NAME, f"{name} is the operator's volume.", "Choose another name.")


def _covered_by_mounts(spec: DeepSpeedJobSpec, template: PodTemplate) -> Iterator[Finding]:
    for position, mount in enumerate(list_at(template.trainer, "volumeMounts")):
        mounted = object_at(mount).get("mountPath")
        if not isinstance(mounted, str) or not mounted:
            continue
        path = f"{template.trainer_path}.volumeMounts[{position}].mountPath"
        target = normpath(mounted)
        if _within(target, JOB_DIRECTORY) or _within(target, FILES_DIRECTORY):
            yield error(
                path, Code.RESERVED_PATH, f"{mounted} lies in a directory of the operator's.", "Mount it elsewhere."
            )
        elif target == WORKSPACE and spec.training.files is not None:
            message = f"{WORKSPACE} is where the files of spec.training.files go."
            fix = f"Mount it elsewhere, below {WORKSPACE} for example, or drop spec.training.files."
            yield error(path, Code.COVERING_MOUNT, message, fix)
        elif (
            _has_config(spec)
            and spec.training.config_path != CONFIG_PATH
            and _within(target, spec.training.config_path)
        ):
            message = f"{mounted} covers spec.training.configPath."
            yield error(
                path, Code.COVERING_MOUNT, message, "Mount it elsewhere, or choose another spec.training.configPath."
            )


def _config_path(spec: DeepSpeedJobSpec) -> Iterator[Finding]:
    path = spec.training.config_path
    if path == CONFIG_PATH:
        return
    where = "spec.training.configPath"
    ours = [JOB_DIRECTORY, FILES_DIRECTORY]
    if normpath(path) != path:
        yield error(where, Code.UNNORMALIZED_PATH, f"{path} is not in its shortest form.", f"Write {normpath(path)}.")
    elif any(_within(path, directory) for directory in ours) or path in {WORKSPACE, SHARED_MEMORY}:
        message = f"{path} is, or lies in, a directory of the operator's."
        yield error(where, Code.RESERVED_PATH, message, f"Remove it ({CONFIG_PATH}), or choose another.")


def _shared_memory_twice(spec: DeepSpeedJobSpec, template: PodTemplate) -> Iterator[Finding]:
    if spec.shared_memory is not None and template.mounts_shared_memory:
        message = f"the template mounts its own volume at {SHARED_MEMORY}, whose size this field would set."
        yield error("spec.sharedMemory", Code.SHARED_MEMORY_TWICE, message, "Remove this field, or that mount.")


def _has_config(spec: DeepSpeedJobSpec) -> bool:
    return spec.ds_config is not None or spec.ds_config_from is not None


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")
