"""What the worker image does without: its pods are admitted where Pod Security enforces the level restricted."""

from dataclasses import dataclass
from typing import Final

from deepspeed_operator.api.untyped import Json, object_at
from deepspeed_operator.render.contributor import Contributor

_RESTRICTED: Final[Json] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True, slots=True)
class Hardening(Contributor):
    """Adds what the level restricted asks for and nobody says.

    Nothing where the container or its pod asks for more than that level allows. Of the container alone: others of the
    pod may be root.
    """

    def add_to_trainer(self, trainer: Json, pod: Json) -> Json:
        own = object_at(trainer, "securityContext")
        given = {**object_at(pod, "securityContext"), **own}
        privileged = given.get("privileged") or given.get("capabilities") or given.get("allowPrivilegeEscalation")
        if privileged or given.get("runAsUser") == 0 or given.get("runAsNonRoot") is False:
            return trainer
        added = {name: value for name, value in _RESTRICTED.items() if name not in given}
        return {**trainer, "securityContext": {**own, **added}}
