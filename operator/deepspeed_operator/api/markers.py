"""Annotations by which a pydantic type says what only a CRD schema can say."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

JsonSchema = dict[str, Any]
# RFC 3339, UTC, as metav1.Time.
Timestamp = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]


MOST_FREE_FIELDS = 1_000  # at the top; api/bounds.py bounds what is below


def left_open(schema: JsonSchema) -> None:
    """Keep the API server from writing the default of a field into jobs: a platform team may have another one."""
    del schema["default"]


class SchemaMarker:
    """Adds Kubernetes schema extensions to the JSON schema of the annotated type."""

    def extension(self) -> JsonSchema:
        raise TypeError("a marker defines its extension")

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        schema = dict(handler(core))  # beside a reference, not inside the type that other fields share
        for key, value in self.extension().items():
            schema[key] = [*schema.get(key, []), *value] if isinstance(value, list) else value
        return schema


@dataclass(frozen=True)
class Cel(SchemaMarker):
    """A validation rule that the API server evaluates; `message` names the field and what to write instead."""

    rule: str
    message: str

    def extension(self) -> JsonSchema:
        return {"x-kubernetes-validations": [{"rule": self.rule, "message": self.message}]}


@dataclass(frozen=True)
class ListMap(SchemaMarker):
    """A list whose items are merged by one key."""

    key: str

    def extension(self) -> JsonSchema:
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [self.key]}


@dataclass(frozen=True)
class Atomic(SchemaMarker):
    """A list that one applier owns whole."""

    def extension(self) -> JsonSchema:
        return {"x-kubernetes-list-type": "atomic"}


@dataclass(frozen=True)
class FreeForm(SchemaMarker):
    """An object that the API server stores as it was written; the operator judges its content."""

    def extension(self) -> JsonSchema:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "maxProperties": MOST_FREE_FIELDS}


@dataclass(frozen=True)
class IntOrString(SchemaMarker):
    """A Kubernetes quantity: `16Gi`, or a plain number of bytes. The pattern is for the string."""

    pattern: str

    def extension(self) -> JsonSchema:
        return {"x-kubernetes-int-or-string": True, "pattern": self.pattern}
