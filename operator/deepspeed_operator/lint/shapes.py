"""Whether the template has the shape of a PodTemplateSpec, in the places that we read or add to."""

from collections.abc import Iterator
from typing import Any

from deepspeed_operator.api.finding import Code, error
from deepspeed_operator.api.status import Finding
from deepspeed_operator.api.untyped import Json, list_at, object_at
from deepspeed_operator.dsconfig.wording import quoted
from deepspeed_operator.job.template import POD, TEMPLATE, PodTemplate

_OBJECT_LISTS = ("containers", "initContainers", "volumes", "tolerations", "topologySpreadConstraints")
_CONTAINER_LISTS = ("env", "volumeMounts")


def shape_findings(template: PodTemplate) -> list[Finding]:
    """Return what is neither absent nor of the type that Kubernetes has there."""
    return list(_wrong_shapes(template))


def _wrong_shapes(template: PodTemplate) -> Iterator[Finding]:
    yield from _expect_object(template.written or {}, TEMPLATE, "metadata", "spec")
    metadata, pod = template.metadata, template.pod
    yield from _expect_object(metadata, f"{TEMPLATE}.metadata", "labels", "annotations")
    for field in ("labels", "annotations"):
        for key, value in object_at(metadata, field).items():
            if not isinstance(value, str):
                yield _wrong(f"{TEMPLATE}.metadata.{field}[{quoted(key)}]", "a string", value)
    grace = pod.get("terminationGracePeriodSeconds")
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        yield _wrong(f"{POD}.terminationGracePeriodSeconds", "a whole number", grace)
    for field in _OBJECT_LISTS:
        yield from _expect_objects(pod, POD, field)
    for position, container in enumerate(list_at(pod, "containers")):
        yield from _wrong_container(object_at(container), f"{POD}.containers[{position}]")


def _wrong_container(container: Json, path: str) -> Iterator[Finding]:
    for field in ("name", "image", "workingDir"):
        value = container.get(field)
        if value is not None and not isinstance(value, str):
            yield _wrong(f"{path}.{field}", "a string", value)
    command = container.get("command")
    words = list_at(container, "command")
    if command not in (None, words) or not all(isinstance(word, str) for word in words):
        yield _wrong(f"{path}.command", "a list of strings", command)
    yield from _expect_object(container, path, "resources")
    yield from _expect_object(object_at(container, "resources"), f"{path}.resources", "limits", "requests")
    for field in _CONTAINER_LISTS:
        yield from _expect_objects(container, path, field)
    yield from _expect_objects(object_at(container, "resources"), f"{path}.resources", "claims")


def _expect_object(parent: Json, path: str, *fields: str) -> Iterator[Finding]:
    for field in fields:
        value = parent.get(field)
        if value is not None and not isinstance(value, dict):
            yield _wrong(f"{path}.{field}", "an object", value)


def _expect_objects(parent: Json, path: str, field: str) -> Iterator[Finding]:
    value = parent.get(field)
    if value is None:
        return
    if not isinstance(value, list):
        yield _wrong(f"{path}.{field}", "a list", value)
    for position, item in enumerate(list_at(parent, field)):
        if not isinstance(item, dict):
            yield _wrong(f"{path}.{field}[{position}]", "an object", item)


def _wrong(path: str, expected: str, value: Any) -> Finding:
    message = f"must be {expected}, not {quoted(value)}."
    return error(path, Code.INVALID_FIELD, message, "See `kubectl explain pod.spec`.")
