"""What the worker image does without: its pods are admitted where Pod Security enforces the level restricted."""

from typing import Final

from deepspeed_operator.api.untyped import Json, object_at

_RESTRICTED: Final[Json] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def hardened(container: Json, pod_context: Json) -> Json:
    """Return the container with what the level restricted asks for and nobody says; `pod_context` is that of its pod.

    Unchanged where either asks for more than that level allows. Of the container alone: others of the pod may be root.
    """
    given = {**pod_context, **object_at(container, "securityContext")}
    privileged = given.get("privileged") or given.get("capabilities") or given.get("allowPrivilegeEscalation")
    if privileged or given.get("runAsUser") == 0 or given.get("runAsNonRoot") is False:
        return container
    added = {name: value for name, value in _RESTRICTED.items() if name not in given}
    return {**container, "securityContext": {**object_at(container, "securityContext"), **added}}
