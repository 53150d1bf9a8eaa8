"""Which container of the template trains."""

from deepspeed_operator.api.names import TRAINER
from deepspeed_operator.api.untyped import Json, objects_at


def trainer_of(template: Json | None) -> Json | None:
    """Return the container named `trainer`, or the only one; None if the template leaves it to us or is ambiguous."""
    containers = objects_at(template, "spec", "containers")
    named = [container for container in containers if container.get("name") == TRAINER]
    if named:
        return named[0]
    return containers[0] if len(containers) == 1 else None
