"""Types of arguments that are numbers: what cannot be meant is refused in words, before anything is read."""

import argparse
from collections.abc import Callable

_MOST_DIGITS = 9
_SCALES = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def within(least: int, most: int) -> Callable[[str], int]:
    """Return the type of a whole number between these."""

    def number(text: str) -> int:
        plain = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
        if not plain or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text[:20]} is not a number from {least} to {most}")
        return int(text)

    return number


def positive(text: str) -> float:
    """Read a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e15:
        raise argparse.ArgumentTypeError(f"{text[:20]} is not a number above 0")
    return number


def count(text: str) -> float:
    """Read a number above 0 as models are named by it: 7B, 350M, 7e9."""
    scale = _SCALES.get(text[-1:].upper(), 1)
    try:
        return positive(text[:-1] if scale > 1 else text) * scale
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text[:20]} is not a number above 0, such as 7B or 7e9") from None
