"""Agents' words, which anybody in a pod may have written: as what they are meant for, or not at all."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

Told = TypeVar("Told", bound=BaseModel)


def read_as(model: type[Told], said: object) -> Told | None:
    """Return what an agent tells; None if it tells nothing of that, or nothing that status could hold."""
    try:
        return model.model_validate(said)
    except ValidationError:
        return None
