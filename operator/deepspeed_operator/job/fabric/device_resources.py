"""Resources that a profile adds to the trainer container."""

from fnmatch import fnmatchcase

from deepspeed_operator.api.untyped import Json, list_at, object_at
from deepspeed_operator.job.fabric.profile import Profile


def missing_resources(fabric: Profile, container: Json) -> dict[str, str]:
    """Return the limits to add: none where the template brings the fabric's devices in any way of its own."""
    left_out = pages_left_out(fabric, container)
    return {name: quantity for name, quantity in _wanted(fabric, container).items() if name not in left_out}


def pages_left_out(fabric: Profile, container: Json) -> list[str]:
    """Return huge pages that the API server would refuse to the container, since it asks for neither cpu nor memory."""
    kinds = [object_at(container, "resources", kind) for kind in ("limits", "requests")]
    if any(name in kind for kind in kinds for name in ("cpu", "memory")):
        return []
    return [name for name in _wanted(fabric, container) if is_huge(name)]


def is_huge(resource: str) -> bool:
    """Whether it is memory in huge pages, no device."""
    return resource.startswith("hugepages-")


def _wanted(fabric: Profile, container: Json) -> dict[str, str]:
    declared = object_at(container, "resources", "limits")
    claimed = list_at(container, "resources", "claims")
    if claimed or any(fnmatchcase(name, pattern) for name in declared for pattern in fabric.devices):
        return {}
    return {name: each for name, each in fabric.resources.items() if name not in declared and each != "0"}
