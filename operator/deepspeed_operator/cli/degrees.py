"""The option by which a command is told what a script does with its ranks."""

import argparse
from dataclasses import fields
from typing import Final

from deepspeed_operator.dsconfig.parallelism import ParallelDegrees

_NAMES: Final = tuple(field.name for field in fields(ParallelDegrees))
_MOST: Final = 10_000


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the argument."""
    parser.add_argument(
        "--parallelism",
        type=_degrees,
        default=ParallelDegrees(),
        metavar="NAME=N,…",
        help=f"what the script does with its ranks, as spec.parallelism says it: {', '.join(_NAMES)}",
    )


def _degrees(text: str) -> ParallelDegrees:
    degrees: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        if name not in _NAMES or not number.isdecimal() or not 0 < int(number) <= _MOST:
            raise argparse.ArgumentTypeError(f"{part[:30]!r} is not as tensor=2: one of {', '.join(_NAMES)}, a number")
        degrees[name] = int(number)
    return ParallelDegrees(**degrees)
