"""Kinds of JSON values that a getter of DeepSpeed may tell apart, each with the value by which the generator tried it.

A schema says of a key which kinds the version refuses, as a string of these letters.
"""

from typing import Any, Final

PROBES: Final[dict[str, Any]] = {
    "n": None,
    "f": False,
    "t": True,
    "0": 0,
    "1": 1,
    "i": 7,
    "-": -7,
    "z": 0.0,
    "u": 1.0,
    "w": 7.0,
    "r": 0.5,
    "m": -0.5,
    "e": "",
    "s": "probe",
    "d": "7",
    "a": "auto",
    "L": [],
    "S": ["probe"],
    "N": [7],
    "E": {},
    "O": {"probe": 7},
}
_MOST_DIGITS = 4300  # Python's own limit


def kind_of(value: object) -> str:
    """Return the letter of a value's kind."""
    if value is None:
        return "n"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, int):
        return {0: "0", 1: "1"}.get(value, "i" if value > 0 else "-")
    if isinstance(value, float):
        return {0.0: "z", 1.0: "u"}.get(value, "m" if value < 0 else "w" if value.is_integer() else "r")
    if isinstance(value, str):
        return {"": "e", "auto": "a"}.get(value, "d" if is_digits(value) else "s")
    if isinstance(value, list):
        return "L" if not value else "S" if all(isinstance(item, str) for item in value) else "N"  # pyright: ignore[reportUnknownVariableType]
    return "O" if value else "E"


def is_digits(text: str) -> bool:
    """Whether Python's int() reads it."""
    try:
        int(text)
    except ValueError:
        return False
    return len(text) <= _MOST_DIGITS


def accepted_words(refused: str, default: object) -> str:
    """Say in words which values are accepted where these kinds are refused."""
    words = [text for letters, text in _WORDS if not set(letters) & set(refused)]
    if isinstance(default, bool) and "f" not in refused:
        # Numbers, and what is empty, are accepted because Python takes them for true and false.
        return _SWITCH if "t" not in refused else "false"
    if "O" in refused and words != [OBJECT]:
        words = [word for word in words if word != OBJECT]  # only the empty one, as good as nothing
    for better, worse in _IMPLIED:
        words = [word for word in words if better not in words or word != worse]
    if len(words) < 2:
        return words[0] if words else "left out"
    return f"{', '.join(words[:-1])} or {words[-1]}"


_SWITCH: Final = "true or false"
OBJECT: Final = "an object {…}"
_WORDS: Final = (
    ("ft", _SWITCH),
    ("01i-zuwrm", "a number"),
    ("01i-", "a whole number"),
    ("1i", "a whole number above 0"),
    ("s", "text"),
    ("S", "a list of texts"),
    ("N", "a list of numbers"),
    ("E", OBJECT),
)
_IMPLIED: Final = (
    ("a number", _SWITCH),
    ("a number", "a whole number"),
    ("a number", "a whole number above 0"),
    ("a whole number", "a whole number above 0"),
)
