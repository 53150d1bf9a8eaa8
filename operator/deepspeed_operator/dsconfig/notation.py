"""The types of a schema's models as the generator writes them: `"int"`, or `{"int": {"ge": 0}}`, `{"nullable": …}`."""

from typing import Any, cast


def parts(described: Any) -> tuple[str, Any]:
    """Return the kind of a type and what is inside it, None if nothing is."""
    if isinstance(described, dict):
        ((kind, inner),) = cast(dict[str, Any], described).items()
        return kind, inner
    return described, None


def model_in(described: Any) -> str | None:
    """Return the name of the model that a value of this type is, if it is one."""
    kind, inner = parts(described)
    while kind == "nullable":
        kind, inner = parts(inner)
    return inner if kind == "model" else None
