"""Judges a spec by the CRD's schema, as the API server would: the same constraints, written by `make generate`.

Generating them again from the models would take longer than all the rest of an answer.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from deepspeed_operator.api.finding import Code, error
from deepspeed_operator.api.status import Finding
from deepspeed_operator.cli.rules import broken_rules
from deepspeed_operator.dsconfig.nearest import NearNames
from deepspeed_operator.dsconfig.wording import quoted

Schema = Mapping[str, Any]
_KINDS: Final = {
    "object": "an object",
    "array": "a list",
    "string": "a string",
    "boolean": "true or false",
    "integer": "a whole number",
}
_TYPES: Final[Mapping[str, type]] = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
_BOUNDS: Final = {"minimum": "at least", "maximum": "at most"}
_SIZES: Final = {
    "minLength": "have at least {} characters",
    "maxLength": "have at most {} characters",
    "minItems": "have at least {} items",
    "maxItems": "have at most {} items",
    "maxProperties": "have at most {} keys",
}


def schema_findings(job: Mapping[str, Any]) -> list[Finding]:
    """Return what the API server would refuse about metadata.name and spec when the job is created."""
    schema = _constraints()
    spec = cast(Schema, schema["properties"]["spec"])
    if job.get("spec") is None:
        findings = [
            error("spec", Code.MISSING_FIELD, "is missing.", "Write what to train: spec.training, spec.dsConfig, …")
        ]
    else:
        findings = list(_wrong(job["spec"], spec, "spec", NearNames()))
    return [*findings, *broken_rules(job, {**schema, "properties": {}})]


@cache
def _constraints() -> Schema:
    return json.loads(Path(__file__).with_name("constraints.json").read_text(encoding="utf-8"))


def _wrong(value: object, schema: Schema, path: str, near: NearNames) -> Iterator[Finding]:
    if schema.get("x-kubernetes-int-or-string"):
        yield from _wrong_quantity(value, schema, path)
        return
    kind = schema["type"]
    if not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool)):
        yield error(path, Code.INVALID_FIELD, f"must be {_KINDS[kind]}, not {quoted(value)}.", _explained(path))
        return
    yield from _out_of_bounds(value, schema, path, near)
    if kind == "array":
        for position, item in enumerate(cast("list[object]", value)):
            yield from _wrong(item, schema["items"], f"{path}[{position}]", near)
    elif kind == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        fields = cast("dict[str, Any]", value)
        below = _wrong_fields if "properties" in schema else _wrong_map
        yield from below(fields, schema, path, near)


def _wrong_fields(value: dict[str, Any], schema: Schema, path: str, near: NearNames) -> Iterator[Finding]:
    fields = cast("dict[str, Schema]", schema["properties"])
    below: list[Finding] = []
    for name, item in value.items():
        if name not in fields:
            below.append(_unknown(name, list(fields), path, near))
        elif item is not None:  # the API server drops a null, and the field's default holds
            below += _wrong(item, fields[name], f"{path}.{name}", near)
    for name in schema.get("required", ()):
        if value.get(name) is None:
            below.append(error(f"{path}.{name}", Code.MISSING_FIELD, "is missing.", _explained(f"{path}.{name}")))
    yield from below
    if not below:
        yield from broken_rules(value, schema)


def _wrong_map(value: dict[str, Any], schema: Schema, path: str, near: NearNames) -> Iterator[Finding]:
    for name, item in value.items():
        shown = f".{name}" if re.fullmatch(r"[-\w]+", name) else f"[{quoted(name)}]"
        yield from _wrong(item, schema["additionalProperties"], f"{path}{shown}", near)


def _out_of_bounds(value: Any, schema: Schema, path: str, near: NearNames) -> Iterator[Finding]:
    if value not in schema.get("enum", (value,)):
        choices = schema["enum"]
        close = near.nearest(value, choices, cutoff=0.5)
        words = f"must be one of {', '.join(choices)}, not {quoted(value)}."
        yield error(path, Code.INVALID_FIELD, words, f"Write {close}." if close else _explained(path))
    for bound, word in _BOUNDS.items():
        limit = schema.get(bound)
        if limit is not None and (value < limit if bound == "minimum" else value > limit):
            yield error(path, Code.INVALID_FIELD, f"must be {word} {limit:,}, not {quoted(value)}.", _explained(path))
    for bound, words in _SIZES.items():
        limit = schema.get(bound)
        if limit is not None and (len(value) < limit if bound.startswith("min") else len(value) > limit):
            yield error(
                path,
                Code.INVALID_FIELD,
                f"must {words.format(f'{limit:,}')}, and has {len(value):,}.",
                _explained(path),
            )
    if "pattern" in schema and not _matches(schema["pattern"], value):
        yield error(path, Code.INVALID_FIELD, f"{quoted(value)} does not match {schema['pattern']}.", _explained(path))


def _wrong_quantity(value: object, schema: Schema, path: str) -> Iterator[Finding]:
    fits = isinstance(value, int) if not isinstance(value, str) else _matches(schema["pattern"], value)
    if not fits or isinstance(value, bool):
        yield error(path, Code.INVALID_FIELD, f"must be a quantity, not {quoted(value)}.", "Write 16Gi, for example.")


def _matches(pattern: str, value: str) -> bool:
    # Go's $ is the end of the text; Python's is also before a last newline.
    return re.search(pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern, value) is not None


def _unknown(name: str, fields: list[str], path: str, near: NearNames) -> Finding:
    close = near.nearest(name, fields, cutoff=0.6)
    fix = f"Did you mean {close}?" if close else f"It has {', '.join(fields)}."
    shown = name if re.fullmatch(r"[-\w]+", name) else f"[{quoted(name)}]"
    where = f"{path}{shown}" if shown.startswith("[") else f"{path}.{shown}"
    return error(where, Code.UNKNOWN_FIELD, f"not a field of {path}: kubectl refuses it.", fix)


def _explained(path: str) -> str:
    field = re.sub(r"\[[0-9]+\]", "", path)
    return f"See `kubectl explain dsj.{field}`."
