"""Reading what a user wrote without a schema: any value may be anywhere."""

from typing import Any, cast

Json = dict[str, Any]


def object_at(value: object, *path: str) -> Json:
    """Return the object below `value` at this path; an empty one if something else, or nothing, is there."""
    for key in path:
        value = cast(Json, value).get(key) if isinstance(value, dict) else None
    return cast(Json, value) if isinstance(value, dict) else {}


def list_at(value: object, *path: str) -> list[Any]:
    """Return the list below `value` at this path; an empty one if something else, or nothing, is there."""
    found = object_at(value, *path[:-1]).get(path[-1])
    return cast(list[Any], found) if isinstance(found, list) else []


def objects_at(value: object, *path: str) -> list[Json]:
    """Return the objects in the list at this path, without anything else that is in it."""
    return [cast(Json, item) for item in list_at(value, *path) if isinstance(item, dict)]


def present(value: Json) -> Json:
    """Return the fields that are set: to Kubernetes a null is as good as nothing."""
    return {key: item for key, item in value.items() if item is not None}
