"""Configuration text → configuration. DeepSpeed's own parser is laxer, and says less."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, NoReturn, cast

from deepspeed_operator.api.status import Finding, Level
from deepspeed_operator.dsconfig.wording import quoted

Config = dict[str, Any]

_JSON_NAMES: dict[type, str] = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
_NAMED = 10
_DEEPEST = 100  # what reads it later recurses, at a depth of its own
_PLAIN_JSON = "Write plain JSON: names and strings in double quotes, no comments, no trailing commas."


def parse_config(text: str, where: str = "spec.dsConfigFrom") -> Config | list[Finding]:
    """Parse a ds_config.json, or say everything that is wrong with it; `where` is the path of its source in the job."""
    duplicates: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> Config:
        parsed = dict(pairs)
        if len(parsed) < len(pairs):
            duplicates.extend(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        return parsed

    try:
        config: object = json.loads(text, object_pairs_hook=unique, parse_constant=_refuse_number, parse_float=_finite)
    except json.JSONDecodeError as error:
        return [
            _error(where, f"not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}.", _PLAIN_JSON)
        ]
    except RecursionError:
        return [_too_deep(where)]
    except ValueError as error:
        return [_error(where, f"not valid JSON: {error}.", "Write a finite number.")]
    if not isinstance(config, dict):
        kind = _JSON_NAMES.get(type(config), "a number")
        return [_error(where, f"the configuration must be a JSON object, not {kind}.", "Begin with { and end with }.")]
    if duplicates:
        names = ", ".join(quoted(name) for name in list(dict.fromkeys(duplicates))[:_NAMED])
        return [
            _error(where, f"given more than once in one object: {names}. DeepSpeed refuses that.", "Keep one each.")
        ]
    values = cast(Config, config)
    return [_too_deep(where)] if _deeper_than(values, _DEEPEST) else values


def _deeper_than(value: object, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        layer = [item for container in layer for item in _items(container)]
    return bool(layer)


def _items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast(dict[str, object], value).values()
    return cast(list[object], value) if isinstance(value, list) else ()


def _finite(literal: str) -> float:
    number = float(literal)
    if number in {float("inf"), float("-inf")}:
        _refuse_number(literal)
    return number


def _refuse_number(literal: str) -> NoReturn:
    raise ValueError(f"{literal[:40]} is not a number that JSON or DeepSpeed knows")


def _too_deep(where: str) -> Finding:
    return _error(where, "nested too deeply to be a DeepSpeed configuration.", "Check its brackets.")


def _error(where: str, message: str, fix: str) -> Finding:
    return Finding(level=Level.ERROR, path=where, message=message, fix=fix)
