"""A document that is taken apart: what nobody took is what an import does not know, and is listed."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, cast

from deepspeed_operator.api.untyped import Json, list_at, object_at
from deepspeed_operator.cli.imports.remarks import Remarks
from deepspeed_operator.dsconfig.wording import quoted

_OF_THE_SERVER = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")


class Fields:
    """The fields of a document that nobody has taken yet."""

    def __init__(self, document: Json, prefix: str = "") -> None:
        self._rest = deepcopy(document)
        self._prefix = prefix
        self._rest.pop("status", None)
        for key in _OF_THE_SERVER:
            object_at(self._rest, "metadata").pop(key, None)

    def take(self, *path: str) -> Any:
        """Return what is at this path, None where nothing is, and count it as known."""
        return object_at(self._rest, *path[:-1]).pop(path[-1], None)

    def object(self, *path: str) -> Json:
        """Take an object; an empty one if something else, or nothing, is there."""
        found = object_at(self._rest, *path)
        self.take(*path)
        return found

    def list(self, *path: str) -> list[Any]:
        """Take a list; an empty one if something else, or nothing, is there."""
        found = list_at(self._rest, *path)
        self.take(*path)
        return found

    def text(self, *path: str) -> str | None:
        """Take a text, None if something else, or nothing, is there."""
        found = self.take(*path)
        return found if isinstance(found, str) and found else None

    def number(self, *path: str) -> int | None:
        """Take a whole number, also where it is written as a text; None if something else, or nothing, is there."""
        return whole_number(self.take(*path))

    def name_rest(self, remarks: Remarks) -> None:
        """List the fields that nobody has taken as left out."""
        for path, value in _leaves(self._rest, self._prefix):
            remarks.left_out(path, f"{quoted(value)}: nothing in a DeepSpeedJob is like it")


def whole_number(value: object) -> int | None:
    """Return a whole number, also of a text; None of anything else."""
    if isinstance(value, bool):
        return None
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _leaves(value: Json, path: str) -> Iterator[tuple[str, object]]:
    for key, inner in value.items():
        below = f"{path}.{key}" if path else key
        if isinstance(inner, dict):
            yield from _leaves(cast(Json, inner), below)
        elif inner is not None and inner != []:
            yield below, inner
