"""DeepSpeed's pydantic models in a notation of our own: short, and the same whatever pydantic wrote it."""

# pyright: basic, reportMissingImports=false

import enum
import pathlib
from collections.abc import Iterator
from typing import Any

from deepspeed.runtime.config_utils import DeepSpeedConfigModel
from pydantic_core import PydanticUndefined

_BOUNDS = ("gt", "ge", "lt", "le")
_PLAIN = {"bool": "bool", "str": "str", "any": "any", "float": "float", "int": "int"}


def by_name(name: str) -> type[DeepSpeedConfigModel]:
    return next(model for model in _subclasses(DeepSpeedConfigModel) if model.__name__ == name)


def at(model: type[DeepSpeedConfigModel], path: tuple[str, ...]) -> type[DeepSpeedConfigModel]:
    """The model of the field that a path of names or aliases leads to."""
    for step in path:
        field = next(info for name, info in model.model_fields.items() if step in (name, info.alias))
        model = next(part for part in _parts(field.annotation) if _is_model(part))
    return model


def described(model: type[DeepSpeedConfigModel], models: dict[str, Any]) -> str:
    """Describe a model, and those in it, in `models`; return its name there."""
    if model.__name__ in models:
        return model.__name__
    description: dict[str, Any] = {"fields": {}}
    models[model.__name__] = description
    checks, fields = _unwrapped(model.__pydantic_core_schema__)
    for name, info in model.model_fields.items():
        description["fields"][name] = _field(name, info, fields[name]["schema"], models)
    if checks:
        description["checks"] = sorted(checks)
    return model.__name__


def _field(name: str, info: Any, schema: Any, models: dict[str, Any]) -> dict[str, Any]:
    field: dict[str, Any] = {}
    checks: list[str] = []
    nullable = _is_path(info.annotation)
    field["type"] = {"nullable": "path"} if nullable else _type(schema, models, checks)
    if info.alias is not None and info.alias != name:
        field["alias"] = info.alias
    default = info.get_default(call_default_factory=True) if info.default is not PydanticUndefined else None
    if isinstance(default, enum.Enum):
        default = default.value
    if type(default) in (bool, str, list) or isinstance(default, (int, float)):
        field["default"] = int(default) if isinstance(default, int) and type(default) is not bool else default
    extra = info.json_schema_extra or {}
    if extra.get("deprecated"):
        field["deprecated"] = extra.get("new_param", "")
        if not extra.get("set_new_param", True):
            field["without_effect"] = True
    if checks:
        field["checks"] = sorted(checks)
    return field


def _type(schema: Any, models: dict[str, Any], checks: list[str]) -> Any:  # noqa: PLR0911  one return for each kind
    kind = schema["type"]
    if kind in ("default", "function-before", "function-after", "function-wrap"):
        if kind != "default" and getattr(schema["function"]["function"], "__name__", ""):
            checks.append(schema["function"]["function"].__name__)
        return _type(schema["schema"], models, checks)
    if kind in _PLAIN:
        bounds = {bound: schema[bound] for bound in _BOUNDS if bound in schema}
        return {_PLAIN[kind]: bounds} if bounds else _PLAIN[kind]
    if kind == "nullable":
        return {"nullable": _type(schema["schema"], models, checks)}
    if kind == "enum":
        return {"enum": list(dict.fromkeys(member.value for member in schema["members"]))}
    if kind == "literal":
        return {"enum": list(schema["expected"])}
    if kind in ("list", "tuple"):
        items = schema.get("items_schema", {"type": "any"})
        return {"list": "any" if kind == "tuple" else _type(items, models, checks)}
    if kind == "dict":
        return {"dict": _type(schema.get("values_schema", {"type": "any"}), models, checks)}
    if kind == "union":
        return {"union": [_type(choice, models, checks) for choice in schema["choices"]]}
    if kind in ("model", "definitions", "definition-ref"):
        return {"model": described(_unwrapped_class(schema), models)}
    if kind == "is-instance":
        return "never"  # no JSON value is an instance of a class
    raise NotImplementedError(f"pydantic schema {kind}")


def _unwrapped(schema: Any) -> tuple[list[str], dict[str, Any]]:
    """The validators around a model, and its fields."""
    checks: list[str] = []
    while schema["type"] != "model-fields":
        if schema["type"].startswith("function"):
            checks.append(schema["function"]["function"].__name__)
        schema = schema["schema"]
    return checks, schema["fields"]


def _unwrapped_class(schema: Any) -> type[DeepSpeedConfigModel]:
    while schema["type"] != "model":
        schema = schema["schema"]
    return schema["cls"]


def _is_path(annotation: Any) -> bool:
    return any(part is pathlib.Path for part in _parts(annotation))


def _is_model(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, DeepSpeedConfigModel)


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for argument in getattr(annotation, "__args__", None) or ():
        yield from _parts(argument)


def _subclasses(model: Any) -> Iterator[Any]:
    for subclass in model.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def found(title: str, path: tuple[str, ...]) -> type[DeepSpeedConfigModel] | None:
    try:
        return at(by_name(title), path)
    except StopIteration:
        return None
