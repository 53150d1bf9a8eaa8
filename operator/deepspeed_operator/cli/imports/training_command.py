"""Which command of a script trains: the others prepare, wait, print or tidy up."""

import re
from collections.abc import Iterator, Sequence
from posixpath import basename
from typing import Final

from deepspeed_operator.cli.imports.expansion import Variables, expanded
from deepspeed_operator.cli.imports.launch_line import LaunchLine, launch_line, starts_ranks
from deepspeed_operator.cli.imports.remarks import Remarks
from deepspeed_operator.cli.imports.script_context import (
    PRINTING,
    WAITING,
    ScriptContext,
    inner_text,
    learnt,
    names_asked,
    prints,
    words_of_command,
)
from deepspeed_operator.cli.imports.shell import DECLARING, ShellCommand, shell_commands

_NOT_TRAINING: Final = frozenset({"compileall", "ensurepip", "http.server", "json.tool", "pip", "pip3", "venv"})
_PREPARING: Final = frozenset(
    {".", "conda", "mamba", "micromamba", "ml", "module", "pip", "pip3", "sacct", "sbatch", "sbcast"}
    | {"scancel", "scontrol", "source", "spack", "squeue", "ulimit"}
)
_PYTHON: Final = re.compile(r"(?:\S*/)?python[\d.]*")
_NOTHING, _SCRIPT, _PROGRAM, _TASKS, _LAUNCHER = range(5)


def training_command(commands: Sequence[ShellCommand], context: ScriptContext) -> int | None:
    """Return which command trains: the last that starts ranks, else the last Python program, else a script.

    None where nothing does.
    """
    trial = context.variables.copy()
    best: tuple[int, int] | None = None
    for at, command in enumerate(commands):
        learnt(command, trial)
        rank = _rank(command, trial, context)
        if rank and (best is None or rank >= best[0]):
            best = rank, at
    return None if best is None else best[1]


def asked_behind_launchers(command: ShellCommand, variables: Variables) -> set[str]:
    """Return the variables that a command asks for behind its last launcher: for it and the program, not for srun."""
    known, words = variables.copy(), [*command.argv]
    expansions = [[word for word in expanded(raw, known) if not word.endswith(".py")] for raw in words]
    starts = [at for at, each in enumerate(expansions) if any(map(starts_ranks, each))]
    return names_asked(" ".join(words[starts[-1] if starts else 0 :]))


def launched_before(commands: Sequence[ShellCommand], chosen: int, context: ScriptContext) -> Iterator[ShellCommand]:
    """Yield the commands before the chosen one by which a launcher trains, too, but for those of the same construct."""
    trial, within = context.variables.copy(), commands[chosen].construct
    for command in commands[:chosen]:
        learnt(command, trial)
        apart = command.construct is None or command.construct is not within
        if apart and _rank(command, trial, context) == _LAUNCHER:
            yield command


def _rank(command: ShellCommand, variables: Variables, context: ScriptContext) -> int:
    words = words_of_command(command, variables)
    if not words or prints(words) or words[0] in DECLARING | (WAITING - {"pdsh", "ssh"}) | _PREPARING:
        return _NOTHING
    line = launch_line(words, variables, Remarks(), "")
    if line is None or not line.program:
        return _NOTHING
    inner = context.shell_script(line.program) if line.starts_shell else None
    if inner is None:
        return _rank_of(line)
    commands = shell_commands(inner_text(command, inner[0], variables))
    return max((_rank(each, variables, context.inner()) for each in commands), default=_NOTHING)


def _rank_of(line: LaunchLine) -> int:
    *_, name = line.launcher.split() or [""]
    if line.kind == "module" and line.program[0] in _NOT_TRAINING:
        return _NOTHING
    if line.kind == "command" and basename(line.program[0]) in PRINTING | WAITING:
        return _NOTHING
    if name == "shell":
        return _SCRIPT if len(line.program) > 1 else _NOTHING
    if name == "":
        return _PROGRAM if line.kind != "command" or "-c" in line.program or _is_python(line.program) else _NOTHING
    if name == "srun":
        starts_python = any(
            map(_PYTHON.fullmatch, line.program[1:-1])
        )  # behind a script that picks a GPU or binds CPUs
        return _TASKS if line.kind != "command" or starts_python else _NOTHING
    return _TASKS if name == "mpirun" else _LAUNCHER


def _is_python(program: Sequence[str]) -> bool:
    """Whether Python runs a program with options of its own, as `python -O train.py` does."""
    return _PYTHON.fullmatch(program[0]) is not None and any(word.endswith(".py") for word in program)
