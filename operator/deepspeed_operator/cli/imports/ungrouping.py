"""A script whose program stands in a function, braces or parentheses → the same commands without these."""

import re
from collections.abc import Sequence
from typing import Final

from deepspeed_operator.cli.imports.script_context import ScriptContext
from deepspeed_operator.cli.imports.shell import Construct, shell_commands
from deepspeed_operator.cli.imports.training_command import training_command

_NAME: Final = re.compile(r"(?:function\s+)?([^\s(){}]+)")
_PLAIN: Final = re.compile(r"[\w./:=,@%+-]+")
_TAKES_APART: Final = re.compile(r"\$\{?[@*#]|\b(?:shift|getopts)\b")
_POSITION: Final = re.compile(r"'[^']*'|\$(?:([1-9])|\{([1-9])(?::?-([^{}]*))?\})")
_DEEPEST: Final = 4


def ungrouped(text: str, context: ScriptContext) -> str:
    """Return a script with the body of what its program stands in where that is run, if that is once."""
    for _ in range(_DEEPEST):
        commands = shell_commands(text)
        chosen = training_command(commands, context)
        construct = None if chosen is None else commands[chosen].construct
        if construct is None or not construct.is_group:
            break
        body = text[construct.opening + 1 : construct.closing].strip().rstrip(";")
        if not construct.is_function:
            text = f"{text[: construct.start]}{body}{text[construct.closing + 1 :]}"
            continue
        call = _call(text, construct)
        if call is None:
            break
        start, end = call
        body = _with_arguments(body, text[start:end].split()[1:])
        text = f"{text[: construct.start]}{text[construct.end : start]}{body}{text[end:]}"
    return text


def _with_arguments(body: str, arguments: Sequence[str]) -> str:
    """Return a function's body with the arguments of its call, where these are plain words; "$@" is the script's."""
    if not arguments or not all(map(_PLAIN.fullmatch, arguments)) or _TAKES_APART.search(body):
        return body

    def argument(match: re.Match[str]) -> str:
        if match[0].startswith("'"):
            return match[0]
        position = int(match[1] or match[2])
        return arguments[position - 1] if position <= len(arguments) else match[3] or ""

    return _POSITION.sub(argument, body)


def _call(text: str, function: Construct) -> tuple[int, int] | None:
    """Return where a function is called; None where it is not, or more than once."""
    name = _NAME.match(function.text)
    assert name is not None, "a function has a name"
    calls = [each for each in shell_commands(text) if each.start >= function.end and each.argv[:1] == [name[1]]]
    if len(calls) != 1:
        return None
    return calls[0].start, calls[0].start + len(re.split(r"[|&;>\n]", text[calls[0].start : calls[0].end])[0].rstrip())
