"""Which container of the template trains, and what it mounts where we would."""

from posixpath import normpath

from deepspeed_operator.api.names import SHARED_MEMORY, TEMPORARY, TRAINER
from deepspeed_operator.api.untyped import Json, object_at, objects_at


def trainer_of(template: Json | None) -> Json | None:
    """Return the container named `trainer`, or the only one; None if the template leaves it to us or is ambiguous."""
    containers = objects_at(template, "spec", "containers")
    named = [container for container in containers if container.get("name") == TRAINER]
    if named:
        return named[0]
    return containers[0] if len(containers) == 1 else None


def mounts_shared_memory(container: Json) -> bool:
    """Say whether the user mounts something of their own at /dev/shm."""
    return SHARED_MEMORY in _mount_paths(container)


def lacks_temporary(container: Json) -> bool:
    """Say whether the root is read-only and nothing is mounted where programs put temporary files and caches."""
    read_only = object_at(container, "securityContext").get("readOnlyRootFilesystem") is True
    return read_only and TEMPORARY not in _mount_paths(container)


def _mount_paths(container: Json) -> set[str]:
    return {normpath(f"{each.get('mountPath')}") for each in objects_at(container, "volumeMounts")}
