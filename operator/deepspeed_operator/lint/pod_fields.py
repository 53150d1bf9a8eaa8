"""Fields of a template that Kubernetes' pods do not have: the API server refuses them, with nobody's nearest name.

The table is of one version of Kubernetes, and the server may be a newer one: what it does not have is a warning.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any, Final, cast

from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.status import Finding
from deepspeed_operator.dsconfig.nearest import nearest
from deepspeed_operator.dsconfig.wording import quoted
from deepspeed_operator.job.template import POD, PodTemplate

_POD: Final = "PodSpec"
# Places whose fields are taken for each other's, in words.
_HOMES: Final = {
    _POD: POD,
    "Container": "the container",
    "PodSecurityContext": f"{POD}.securityContext",
    "SecurityContext": "the container's securityContext",
    "ResourceRequirements": "the container's resources",
}
_MOST: Final = 50


@dataclass(frozen=True)
class _Table:
    kubernetes: str
    types: Mapping[str, Mapping[str, str]]  # type → field → the type of what it holds, "" where that has no fields


@cache
def _table() -> _Table:
    return _Table(**json.loads(files("deepspeed_operator.lint").joinpath("pod_fields.json").read_text("utf-8")))


def field_findings(template: PodTemplate) -> list[Finding]:
    """Return a warning for each field of the template's spec that a pod does not have, the first ones of them."""
    return list(islice(_unknown(template.pod, _POD, POD), _MOST)) if template.pod else []


def _unknown(value: object, kind: str, path: str) -> Iterator[Finding]:
    if isinstance(value, list):
        for position, item in enumerate(cast("list[object]", value)):
            yield from _unknown(item, kind, f"{path}[{position}]")
    if not isinstance(value, dict):
        return  # a value of another type is not judged here
    known = _table().types[kind]
    for field, inner in cast("dict[str, Any]", value).items():
        if field not in known:
            yield _no_field(field, kind, path)
        elif known[field]:
            yield from _unknown(inner, known[field], f"{path}.{field}")


def _no_field(field: str, kind: str, path: str) -> Finding:
    shown = quoted(field)[1:-1]
    version = _table().kubernetes
    message = f"not a field of {kind} in Kubernetes {version}: the API server refuses it, unless it is a newer one."
    return warning(f"{path}.{shown}", Code.UNKNOWN_FIELD, message, _fix(field, shown, kind))


def _fix(field: str, shown: str, kind: str) -> str:
    close = nearest(field, _table().types[kind])
    if close is not None:
        return f"Write {close}."
    homes = _HOMES if kind in _HOMES else {}
    home = next((words for name, words in homes.items() if field in _table().types[name]), None)
    return f"Move it to {home}." if home is not None else f"Remove {shown}, or check its name."
