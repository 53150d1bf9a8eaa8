"""Types of arguments: what cannot be meant is refused in words, before anything is read."""

import argparse
from collections.abc import Callable

from deepspeed_operator.dsconfig.versions import numbers_of

_MOST_DIGITS = 9


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


def version_number(text: str) -> str:
    """Read a version of DeepSpeed."""
    if numbers_of(text) is None:
        raise argparse.ArgumentTypeError(f"{text[:20]} is no version; write 0.19.8, for example")
    return text
