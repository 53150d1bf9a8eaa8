"""A model's description → a validator that coerces and refuses as pydantic does for DeepSpeed."""

from collections.abc import Mapping
from enum import Enum, IntEnum, StrEnum
from typing import Any

from pydantic_core import CoreSchema, SchemaValidator
from pydantic_core import core_schema as core

from deepspeed_operator.dsconfig.notation import parts

Models = Mapping[str, Any]

_PLAIN: dict[str, Any] = {"bool": core.bool_schema, "int": core.int_schema, "float": core.float_schema}


def compiled(models: Models, name: str) -> SchemaValidator:
    return SchemaValidator(_model(models, name), core.CoreConfig(validate_by_name=True, validate_by_alias=True))


def _model(models: Models, name: str) -> CoreSchema:
    fields = {
        field: core.model_field(
            core.with_default_schema(_type(models, info["type"]), default=None), validation_alias=info.get("alias")
        )
        for field, info in models[name]["fields"].items()
    }
    return core.model_fields_schema(fields, extra_behavior="forbid")


def _type(models: Models, described: Any) -> CoreSchema:  # noqa: PLR0911  one return for each notation
    kind, inner = parts(described)
    match kind:
        case "bool" | "int" | "float":
            return _PLAIN[kind](**(inner or {}))
        case "str" | "path":
            return core.str_schema()
        case "any":
            return core.any_schema()
        case "never":
            return core.is_instance_schema(_Never)
        case "nullable":
            return core.nullable_schema(_type(models, inner))
        case "enum":
            return _enum(inner)
        case "list":
            return core.list_schema(_type(models, inner))
        case "dict":
            return core.dict_schema(core.str_schema(), _type(models, inner))
        case "union":
            return core.union_schema([_type(models, choice) for choice in inner])
        case "model":
            return _model(models, inner)
        case _:
            raise ValueError(f"unknown type {described}")


def _enum(values: list[Any]) -> CoreSchema:
    names = [(f"value_{index}", value) for index, value in enumerate(values)]
    if all(isinstance(value, int) for value in values):
        numbers: type[Enum] = IntEnum("Choice", names)
        return core.enum_schema(numbers, list(numbers), sub_type="int")
    texts: type[Enum] = StrEnum("Choice", names)
    return core.enum_schema(texts, list(texts), sub_type="str")


class _Never:
    """No JSON value is an instance of it."""
