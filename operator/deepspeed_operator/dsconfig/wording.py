"""A user's values, as messages show them."""

import json

_SHOWN = 60


def quoted(value: object) -> str:
    """The value as JSON, ASCII only and short: it goes into status, which is bounded and must be valid UTF-8."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def plural(number: int, word: str) -> str:
    """Write `1 rank`, `2 ranks`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
