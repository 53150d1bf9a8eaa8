"""Sections with a pydantic model: unknown keys and wrong values are refused."""

import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, cast

from pydantic_core import ValidationError

from deepspeed_operator.api.finding import Code
from deepspeed_operator.dsconfig.intent import intended, type_of, written_instead
from deepspeed_operator.dsconfig.nearest import NearNames, misplaced_or_nearest, nearest_choice
from deepspeed_operator.dsconfig.notation import model_in, parts
from deepspeed_operator.dsconfig.notes import Note, Path, error, warning
from deepspeed_operator.dsconfig.schema import Schema
from deepspeed_operator.dsconfig.typewords import type_words
from deepspeed_operator.dsconfig.wording import quoted

Values = Mapping[str, Any]
Coerced = dict[str, Any]

_STAGE_3: Final = 3


def read_model(schema: Schema, model: str, given: Values, path: Path, near: NearNames) -> tuple[list[Note], Coerced]:
    """Judge a section by its model; return the values as DeepSpeed would hold them, where it would."""
    values = _as_constructed(schema, model, given)
    try:
        coerced, _, present = schema.validator(model).validate_python(values)
    except ValidationError as refusal:
        return _refusals(schema, model, values, path, refusal, near=near), {}
    fields = cast(Coerced, _plain(coerced))
    notes = _checked(schema, model, fields, values, path)
    notes += _deprecated(schema, model, fields, present, path)
    return notes, fields


def _plain(value: object) -> object:
    """Return a validator's result without its enums, which are no module's: plans are sent between processes."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: inner if inner is None else _plain(inner) for key, inner in cast(Coerced, value).items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in cast(list[object], value)]
    if isinstance(value, tuple):
        return tuple(_plain(inner) for inner in cast(tuple[object, ...], value))
    return value


def _as_constructed(schema: Schema, model: str, given: Values) -> Coerced:
    """What reaches pydantic: DeepSpeed's constructor takes out "auto" and its own argument `strict`."""
    if given.get("strict"):
        return {key: value for key, value in given.items() if key != "strict"}
    values = {key: value for key, value in given.items() if key != "strict" and value != "auto"}
    if "_coerce_container_types" in schema.models[model].get("checks", ()):
        values = {key: [value] if isinstance(value, str) else value for key, value in values.items()}
    models = schema.index(model).models
    for key, value in values.items():
        inner = models.get(key)
        if inner is None:
            continue
        if value is None and "_coerce_container_types" in schema.models[inner].get("checks", ()):
            values[key] = {}
        elif isinstance(value, dict):
            values[key] = _as_constructed(schema, inner, cast(Values, value))
    return values


def _refusals(
    schema: Schema, model: str, values: Values, path: Path, refusal: ValidationError, *, near: NearNames
) -> list[Note]:
    notes = {(note.path, note.code): note for note in _field_notes(schema, model, values, path)}
    for line in refusal.errors(include_url=False, include_context=False):
        inner, described, steps = _followed(schema, model, values, line["loc"])
        if line["type"] == "extra_forbidden":
            note = _unknown(schema, inner, (*path, *line["loc"]), values, near)
        else:
            note = _wrong(described, line["input"], (*path, *steps), _default(schema, inner, steps), near)
        notes.setdefault((note.path, note.code), note)
    return list(notes.values())


def _followed(schema: Schema, model: str, values: Any, loc: Path) -> tuple[str, Any, Path]:
    """Follow an error's location as far as the values go: beyond are names of a union's branches."""
    described: Any = {"model": model}
    steps: list[str | int] = []
    for step in loc:
        try:
            values = values[step]
        except (KeyError, IndexError, TypeError):
            break
        name = model_in(described)
        if name is not None:
            model = name
            fields = schema.models[name]["fields"]
            named = fields.get(step) or next((info for info in fields.values() if info.get("alias") == step), None)
            described = named["type"] if named else "any"
        else:
            described = parts(described)[1] or "any"
        steps.append(step)
    return model, described, tuple(steps)


def _unknown(schema: Schema, model: str, path: Path, values: Values, near: NearNames) -> Note:
    key = str(path[-1])
    other = schema.models[model]["fields"].get(key, {}).get("alias")
    if other in values:
        message = f"is another name of {other}, which is given too: DeepSpeed refuses both together."
        return error(path, Code.UNKNOWN_KEY, message, f"Remove {key}.")
    hint, fix = misplaced_or_nearest(schema, model, key, near)
    message = f"unknown key{hint}."
    return error(path, Code.UNKNOWN_KEY, message, fix or f"Remove {key}.")


def _wrong(described: Any, value: object, path: Path, default: object, near: NearNames) -> Note:
    meant = nearest_choice(described, value, near)
    if meant is None:
        meant = intended(type_of(described), value)
    message = f"must be {type_words(described)}, not {quoted(value)}."
    return error(path, Code.INVALID_VALUE, message, written_instead(path[-1], meant, default))


def _default(schema: Schema, model: str, steps: Path) -> object:
    fields: dict[str, Values] = schema.models[model]["fields"]
    for name, info in fields.items():
        if steps and steps[-1] in (name, info.get("alias")):
            return info.get("default")
    return None


def _checked(schema: Schema, model: str, fields: Coerced, values: Values, path: Path) -> list[Note]:
    index = schema.index(model)
    notes = _field_notes(schema, model, values, path)
    for check in schema.models[model].get("checks", ()):
        if check in _MODEL_CHECKS:
            notes += _MODEL_CHECKS[check](schema, fields, path)
    for key, value in values.items():
        name = index.names[key]
        taken = fields.get(name)
        if isinstance(value, str) and isinstance(taken, int | float):
            notes.append(_loose(value, taken, (*path, key)))
        if key in index.models and isinstance(taken, tuple):
            fields[name] = inner = cast(Coerced, taken[0])
            notes += _checked(schema, index.models[key], inner, cast(Values, value), (*path, key))
    return notes


def _loose(text: str, taken: float, path: Path) -> Note:
    message = f"{quoted(text)} is text, which DeepSpeed takes for {quoted(taken)}."
    return warning(path, Code.LOOSE_TYPE, message, f"Write {path[-1]}: {quoted(taken)}, without quotes.")


def _field_notes(schema: Schema, model: str, values: Values, path: Path) -> list[Note]:
    """What DeepSpeed checks of single values before pydantic sees them."""
    checked = ((name, names) for name, names in schema.index(model).checks.items() if name in values)
    checks = ((name, check) for name, names in checked for check in names if check in _FIELD_CHECKS)
    return [note for name, check in checks for note in _FIELD_CHECKS[check](values[name], (*path, name))]


def _deprecated(schema: Schema, model: str, fields: Coerced, present: set[str], path: Path) -> list[Note]:
    notes: list[Note] = []
    described = schema.models[model]["fields"]
    for name, info in schema.index(model).deprecated.items():
        if name not in present:
            continue
        field: str = info["deprecated"]
        new = described.get(field, {}).get("alias", field)  # the name in DeepSpeed's documentation
        if info.get("without_effect"):
            notes.append(
                warning((*path, name), Code.NO_EFFECT, f"has no effect any more; {new} decides.", f"Use {new}.")
            )
        elif field in present:
            message = f"is the deprecated name of {new}, which is given too: DeepSpeed refuses both together."
            notes.append(error((*path, name), Code.DEPRECATED_AND_NEW_KEY, message, f"Keep {new} only."))
        else:
            notes.append(
                warning((*path, name), Code.DEPRECATED_KEY, f"is deprecated: {new} replaced it.", f"Write {new}.")
            )
            fields[field] = _replaced(field, fields[name])
    return notes


def _replaced(new: str, value: Any) -> Any:
    """What DeepSpeed sets for a deprecated switch: an offload section, or the value itself."""
    if not new.startswith("offload_"):
        return value
    return {"device": "cpu"} if value else None


def _dynamic_scale(_schema: Schema, fields: Coerced, path: Path) -> list[Note]:
    if not fields["enabled"] or fields["loss_scale"]:
        return []
    return [
        error(
            (*path, key),
            Code.OUT_OF_RANGE,
            "must be above 0 with dynamic loss scaling (loss_scale 0).",
            f"Write {key}: 1.",
        )
        for key in ("loss_scale_window", "min_loss_scale")
        if fields[key] is not None and fields[key] <= 0
    ]


def _grad_norm(schema: Schema, fields: Coerced, path: Path) -> list[Note]:
    stages = schema.rules["no_grad_norm"]
    if fields["compute_grad_norm"] is not False or (fields["stage"] or 0) in stages:
        return []
    message = f"false works at ZeRO stages {' and '.join(map(str, stages))} only."
    return [error((*path, "compute_grad_norm"), Code.ZERO_STAGE, message, "Remove it, or use another stage.")]


def _partial_offload(_schema: Schema, fields: Coerced, path: Path) -> list[Note]:
    offload = fields["offload_optimizer"]
    ratio = offload[0]["ratio"] if offload else None
    if ratio is None or ratio >= 1 or fields["stage"] == _STAGE_3:
        return []
    message = "partial offloading (ratio below 1) works at ZeRO stage 3 only."
    return [error((*path, "offload_optimizer", "ratio"), Code.ZERO_STAGE, message, "Remove ratio, or write stage 3.")]


def _zenflow(schema: Schema, fields: Coerced, path: Path) -> list[Note]:
    notes: list[Note] = []
    if fields["select_strategy"] not in {None, "auto", "step", "epoch"}:
        notes.append(_one_of(path, "select_strategy", '"auto", "step" or "epoch"', fields["select_strategy"]))
    for key in ("select_interval", "update_interval"):
        value = fields[key]
        if isinstance(value, str) and value != "auto":
            notes.append(_one_of(path, key, '"auto" or a whole number', value))
    update = fields["update_interval"]
    positive = schema.models["ZenFlowConfig"]["fields"]["topk_ratio"]["type"]["float"].get("gt") is not None
    if positive and isinstance(update, int) and update < 1:
        notes.append(_one_of(path, "update_interval", "1 or more", update))
    return notes


def _one_of(path: Path, key: str, words: str, value: object) -> Note:
    return error((*path, key), Code.INVALID_VALUE, f"must be {words}, not {quoted(value)}.", f"Write {words}.")


def _loss_scale(value: object, path: Path) -> list[Note]:
    number = _number(value)
    if number is not None and not isinstance(value, bool) and math.isfinite(number) and number >= 0:
        return []
    fix = "Write loss_scale: 0 for dynamic scaling."
    return [error(path, Code.INVALID_VALUE, f"must be a number, 0 or more, not {quoted(value)}.", fix)]


def _whole_scale(value: object, path: Path) -> list[Note]:
    number = _number(value)
    if number is not None and not isinstance(value, bool) and math.isfinite(number):
        return []
    return [
        error(
            path,
            Code.INVALID_VALUE,
            f"must be a whole number, not {quoted(value)}.",
            f"Write {path[-1]}: 1, for example.",
        )
    ]


def _number(value: object) -> float | None:
    try:
        return float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        return None


ModelCheck = Callable[[Schema, Coerced, Path], list[Note]]
_MODEL_CHECKS: Final[dict[str, ModelCheck]] = {
    "_validate_dynamic_loss_scale_params": _dynamic_scale,
    "compute_grad_norm_valid": _grad_norm,
    "offload_ratio_check": _partial_offload,
    "validate_fields": _zenflow,
}
_FIELD_CHECKS: Final[dict[str, Callable[[object, Path], list[Note]]]] = {
    "_validate_loss_scale": _loss_scale,
    "_reject_non_integer_scale_params": _whole_scale,
}
# Those of DeepSpeed's validators that refuse nothing: they fill in or normalize.
HARMLESS_CHECKS: Final = frozenset(
    {"overlap_comm_valid", "set_pipeline", "check_enabled", "_coerce_container_types", "_validate_entries"}
    | {"elastic_checkpoint_deprecated"}
)
KNOWN_CHECKS: Final = HARMLESS_CHECKS | set(_MODEL_CHECKS) | set(_FIELD_CHECKS)
