"""Questions to a person at a terminal: what an option would have said."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass


class UnansweredError(Exception):
    """Nobody is there to answer; the text says what to give instead."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """`name`: of the argument in the namespace; `read` raises argparse.ArgumentTypeError for what cannot be meant.

    `default` is read where the answer is empty; with None there has to be one.
    """

    name: str
    option: str
    text: str
    read: Callable[[str], object]
    default: str | None = None


def fill(arguments: argparse.Namespace, questions: Sequence[Prompt]) -> None:
    """Ask for what the command line leaves out, or take the defaults where no terminal is there.

    Raises UnansweredError, which names all options that are missing.
    """
    left = [each for each in questions if getattr(arguments, each.name) is None]
    asks = sys.stdin is not None and sys.stdin.isatty()
    missing = [each.option for each in left if each.default is None]
    if missing and not asks:
        raise UnansweredError(f"give {', '.join(missing)}: there is no terminal to ask")
    for each in left:
        setattr(arguments, each.name, _answer(each) if asks else each.read(each.default or ""))


def _answer(prompt: Prompt) -> object:
    default = f" [{prompt.default}]" if prompt.default else ""
    while True:
        print(f"{prompt.text}{default}: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise UnansweredError(f"no answer: give {prompt.option}")
        answer = line.strip() or prompt.default
        if answer is None:
            continue
        try:
            return prompt.read(answer)
        except argparse.ArgumentTypeError as error:
            print(f"  {error}", file=sys.stderr)
