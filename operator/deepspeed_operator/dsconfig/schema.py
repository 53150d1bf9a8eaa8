"""The schema of one version of DeepSpeed, as the generator wrote it (tests/oracle)."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic_core import SchemaValidator

from deepspeed_operator.dsconfig.compiled import compiled
from deepspeed_operator.dsconfig.kinds import kind_of
from deepspeed_operator.dsconfig.notation import model_in
from deepspeed_operator.dsconfig.versions import SUPPORTED, Numbers, numbers_of

TOP = ""


@dataclass(frozen=True, slots=True)
class Key:
    """A key that DeepSpeed asks for outside its pydantic models; `refuses` holds letters of kinds."""

    refuses: str = ""
    refuses_enabled: str | None = None
    refuses_needed: str | None = None
    choices: tuple[str, ...] = ()
    any_case: bool = False
    model: str | None = None
    default: Any = None

    @property
    def default_type(self) -> type:
        default: object = self.default
        return type(default)

    def refused(self, value: object, enabled: bool, needed: bool) -> str:
        """Return the kinds that are refused here, if the value is of one of them; otherwise nothing."""
        kinds = self.refuses
        if enabled and self.refuses_enabled is not None:
            kinds = self.refuses_enabled
        if needed and self.refuses_needed is not None:
            kinds = self.refuses_needed
        chosen = isinstance(value, str) and (value.lower() if self.any_case else value) in self.choices
        return "" if chosen or kind_of(value) not in kinds else kinds


@dataclass(frozen=True, slots=True)
class Section:
    keys: Mapping[str, Key]
    requires: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ModelIndex:
    """What judging a section asks of its model, looked up by the keys that are given: a model has some fifty fields."""

    names: Mapping[str, str]  # of fields, by each key that stands for one: its name and its alias
    by_key: Mapping[str, Any]
    models: Mapping[str, str]  # those of the keys that are sections themselves
    checks: Mapping[str, tuple[str, ...]]  # of the fields that have some
    deprecated: Mapping[str, Any]


@dataclass(frozen=True)
class Schema:
    version: str
    numbers: Numbers
    sections: Mapping[str, Section]
    models: Mapping[str, Any]
    removed: Mapping[str, str]
    rules: Mapping[str, Any]
    optimizers: frozenset[str]
    torch_optimizers: frozenset[str]
    schedulers: frozenset[str]
    torch_schedulers: frozenset[str]
    pipeline: frozenset[str]
    scheduler_params: Mapping[str, tuple[str, ...]]
    # By the optimizer and by who steps it: "device", and where they take others "host" and "torch".
    optimizer_params: Mapping[str, Mapping[str, tuple[str, ...]]]
    torch: str  # the version whose optimizers and schedulers were asked
    _validators: dict[str, SchemaValidator] = field(default_factory=dict[str, SchemaValidator])
    _indices: dict[str, ModelIndex] = field(default_factory=dict[str, ModelIndex])

    def validator(self, model: str) -> SchemaValidator:
        if model not in self._validators:
            self._validators[model] = compiled(self.models, model)
        return self._validators[model]

    def index(self, model: str) -> ModelIndex:
        if model not in self._indices:
            self._indices[model] = _index(self.models[model]["fields"])
        return self._indices[model]

    def __reduce__(self) -> "tuple[Callable[[str], Schema], tuple[str]]":
        """Between processes goes the version alone: its validators cannot, and the schema is there already."""
        return schema_of, (self.version,)

    def starts_refusing(self, check: str) -> bool:
        """Whether this version's engine knows a check, by the generator's name for it."""
        return check in self.rules["engine"]


@cache
def schema_of(version: str) -> Schema:
    text = files("deepspeed_operator.dsconfig").joinpath("schemas", f"{version}.json").read_text(encoding="utf-8")
    data = json.loads(text)
    numbers = numbers_of(version)
    assert numbers is not None, "a supported version has three numbers"
    return Schema(
        version=version,
        numbers=numbers,
        sections={path: _section(section) for path, section in data["sections"].items()},
        models=data["models"],
        removed=data["removed"],
        rules=data["rules"],
        optimizers=frozenset(data["optimizers"]),
        torch_optimizers=frozenset(data["torch_optimizers"]),
        schedulers=frozenset(data["schedulers"]),
        torch_schedulers=frozenset(data["torch_schedulers"]),
        pipeline=frozenset(data["pipeline"]),
        scheduler_params={name: tuple(names) for name, names in data["scheduler_params"].items()},
        optimizer_params={
            name: {place: tuple(names) for place, names in lists.items()}
            for name, lists in data["optimizer_params"].items()
        },
        torch=data["torch"],
    )


@cache
def known_in(path: str) -> Mapping[str, frozenset[str]]:
    """Return for each key of a section (by path) or model (by name) the versions that have it."""
    found: dict[str, set[str]] = {}
    for version in SUPPORTED:
        schema = schema_of(version)
        for key in [*_keys(schema, path), *_fields(schema, path)]:
            found.setdefault(key, set()).add(version)
    return {key: frozenset(versions) for key, versions in found.items()}


def _keys(schema: Schema, path: str) -> list[str]:
    return list(schema.sections[path].keys) if path in schema.sections else []


def _fields(schema: Schema, model: str) -> list[str]:
    fields: Mapping[str, Any] = schema.models[model]["fields"] if model in schema.models else {}
    return [*fields, *(info["alias"] for info in fields.values() if "alias" in info)]


def _index(fields: Mapping[str, Any]) -> ModelIndex:
    names = {name: name for name in fields} | {info["alias"]: name for name, info in fields.items() if "alias" in info}
    models = {key: model_in(fields[name]["type"]) for key, name in names.items()}
    return ModelIndex(
        names=names,
        by_key={key: fields[name] for key, name in names.items()},
        models={key: model for key, model in models.items() if model is not None},
        checks={name: tuple(info["checks"]) for name, info in fields.items() if "checks" in info},
        deprecated={name: info for name, info in fields.items() if "deprecated" in info},
    )


def _section(data: Mapping[str, Any]) -> Section:
    keys = {name: _key(values) for name, values in data["keys"].items()}
    return Section(keys, {context: tuple(names) for context, names in data.get("requires", {}).items()})


def _key(values: Mapping[str, Any]) -> Key:
    given: dict[str, Any] = {**values, "choices": tuple(values.get("choices", ()))}
    return Key(**given)
