"""The type of a model's field, in words for a person who writes JSON."""

from typing import Any, Final

from deepspeed_operator.dsconfig.notation import parts
from deepspeed_operator.dsconfig.wording import quoted

_WORDS: Final = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "path": "a path",
    "any": "something else",
    "never": "left out (only code can give it)",
    "list": "a list",
    "dict": "an object {…}",
    "model": "an object {…}",
}
_BOUNDS: Final = {"ge": "{} or more", "gt": "above {}", "le": "at most {}", "lt": "below {}"}


def type_words(described: Any) -> str:
    kind, inner = parts(described)
    if kind == "nullable":
        return f"{type_words(inner)}, or null"
    if kind == "union":
        return " or ".join(type_words(choice) for choice in inner)
    if kind == "enum":
        return f"one of {', '.join(quoted(value) for value in inner)}"
    limits: dict[str, Any] = inner if kind in {"int", "float"} and inner else {}
    bounds = [_BOUNDS[bound].format(f"{limit:g}") for bound, limit in limits.items()]
    return " ".join([_WORDS[kind], " and ".join(bounds)]).rstrip()
