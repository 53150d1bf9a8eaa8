"""Colours, for a terminal that wants them."""

import os
import sys
from typing import Final, Literal

Colour = Literal["red", "green", "yellow", "cyan"]
_CODES: Final = {"red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def painted(text: str, colour: Colour | None = None, *, bold: bool = False) -> str:
    """Return the text in colour, or as it is where output is no terminal or NO_COLOR is set."""
    codes = [*(["1"] if bold else []), *([_CODES[colour]] if colour else [])]
    if not codes or os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return f"\x1b[{';'.join(codes)}m{text}\x1b[0m"
