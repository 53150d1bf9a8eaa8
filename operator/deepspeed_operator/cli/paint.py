"""What a terminal shows: its colours, where it wants them, and its width."""

import os
import shutil
import sys
from typing import Final, Literal

Colour = Literal["red", "green", "yellow", "cyan"]
_CODES: Final = {"red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def painted(text: str, colour: Colour | None = None, *, bold: bool = False) -> str:
    """Return the text in colour, or as it is where output is no terminal, a dumb one, or NO_COLOR is set."""
    codes = [*(["1"] if bold else []), *([_CODES[colour]] if colour else [])]
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if codes and not plain else text


def columns(most: int) -> int:
    """Return how many columns a line may have: as many as the terminal, if it has fewer than `most`."""
    return min(shutil.get_terminal_size().columns, most) if sys.stdout.isatty() else most
