"""A user's values, as messages show them."""

import json

_SHOWN = 60


def quoted(value: object) -> str:
    """The value as JSON, ASCII only and short: it goes into status, which is bounded and must be valid UTF-8."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
