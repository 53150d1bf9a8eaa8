"""What a value of the wrong type was meant to be: `"true"` is true, `1` is true where a switch is, `"16"` is 16."""

from math import isfinite
from typing import Any, Final

from deepspeed_operator.dsconfig.notation import parts
from deepspeed_operator.dsconfig.wording import quoted

_SWITCHES: Final = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1", "1.0"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0", "0.0"), False),
}
_SWALLOWED: Final = " \t,}]\"'"  # hjson reads a word it does not know to the end of the line
_LONGEST: Final = 40


def intended(kind: type | None, value: object) -> bool | int | float | None:
    """Return the value of this type (bool, int or float) that another type's value means; None if it means none."""
    if not isinstance(value, str | int | float):
        return None
    word = str(value).strip(_SWALLOWED).lower()
    if kind is bool:
        return _SWITCHES.get(word)
    if kind not in {int, float} or isinstance(value, bool) or len(word) > _LONGEST:
        return None
    try:
        number = float(word)
    except ValueError:
        return None
    if not isfinite(number) or (kind is int and not number.is_integer()):
        return None
    return int(word) if word.isdecimal() else int(number) if number.is_integer() else number


def type_of(described: Any) -> type | None:
    """Return which of bool, int and float a type of a schema's model is, whether it may be null or not."""
    kind, inner = parts(described)
    if kind == "nullable":
        return type_of(inner)
    return {"bool": bool, "int": int, "float": float}.get(kind)


def written_instead(key: object, meant: object, default: object) -> str:
    """Return a fix: the value that was meant where it is known, else the default, which is only an example."""
    if meant is not None:
        return f"Write {key}: {quoted(meant)}, or remove it."
    if isinstance(default, bool):
        return f"Write {key}: true or false, or remove it."
    return (
        f"Write {key}: {quoted(default)}, for example, or remove it."
        if default is not None
        else "Correct or remove it."
    )
