"""What a container or a batch script runs → the program that trains, and what has to run before it in each pod."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from posixpath import basename, normpath
from typing import Final

from deepspeed_operator.cli.imports.expansion import shell_text
from deepspeed_operator.cli.imports.launch_line import LaunchLine, launch_line
from deepspeed_operator.cli.imports.prelude import Prelude
from deepspeed_operator.cli.imports.script_context import (
    WAITING,
    ScriptContext,
    inner_text,
    prints,
    short,
    with_arguments,
    words_of_command,
)
from deepspeed_operator.cli.imports.shell import ShellCommand, shell_commands
from deepspeed_operator.cli.imports.training_command import asked_behind_launchers, launched_before, training_command
from deepspeed_operator.cli.imports.ungrouping import ungrouped

_TARGET: Final = re.compile(r"(?:>|^tee\s)\s*([^\s<>&]+)")


@dataclass(slots=True)
class ScriptEntry:
    """What is run: `line` trains; `prelude` is shell that runs before it, once a pod, in `shell`.

    `directory`: where the program starts, if the script says only that.
    `environment`: what the script exports.
    """

    line: LaunchLine | None = None
    prelude: str = ""
    shell: str = "/bin/sh"
    directory: str | None = None
    environment: dict[str, str] = field(default_factory=dict[str, str])


def entry_of(words: Sequence[str], context: ScriptContext) -> ScriptEntry:
    """Read what a container runs: its command and arguments, in Kubernetes' form."""
    inner = context.shell_script(words)
    if inner is not None:
        text, shell, arguments = inner
        with with_arguments(context.variables, arguments):
            return script_entry(text, context, shell)
    if words and (prints(words) or basename(words[0]) in WAITING):
        return ScriptEntry()
    return ScriptEntry(launch_line([*words], context.variables, context.remarks, context.path))


def script_entry(text: str, context: ScriptContext, shell: str = "/bin/bash") -> ScriptEntry:
    """Read a script; `shell`: what runs it."""
    text = ungrouped(text, context)
    commands = shell_commands(text)
    context = replace(context, file=_files_of(commands, text, context))
    prelude = Prelude(context, text)
    chosen = training_command(commands, context)
    if chosen is None:
        return ScriptEntry()
    command = commands[chosen]
    for other in launched_before(commands, chosen, context):
        words = f"{short(text[other.start : other.end])}: it starts ranks, and so does what comes after it"
        context.remarks.refuse(context.path, f"{words}: make a job of each")
    prelude.read(commands[:chosen], within=command.construct)
    prelude.asked = asked_behind_launchers(command, context.variables)
    entry = _started(command, context)
    if entry.line is not None:
        if entry.prelude:
            prelude.kept.append((entry.prelude, "\n"))
        entry.prelude, entry.shell = prelude.finish(entry.line), shell
        entry.environment = prelude.environment() | entry.environment
        entry.directory = entry.directory or prelude.directory
    if command.construct is not None:
        context.changed("the program is started inside a loop or a condition of the script; here it is started once")
    _after(commands[chosen + 1 :], command, text, context)
    return entry


def _files_of(commands: Sequence[ShellCommand], text: str, context: ScriptContext) -> Callable[[str], str | None]:
    """Return what reads a file, also one that the script writes itself: cat > FILE <<EOF."""
    written: dict[str, str] = {}
    for command in commands:
        target = _TARGET.search(text[command.start : command.end].partition("\n")[0])
        if command.heredoc is not None and target is not None and command.argv[:1] in (["cat"], ["tee"]):
            written[normpath(target[1].strip("'\""))] = command.heredoc

    def read(path: str) -> str | None:
        body = written.get(normpath(path))
        return context.file(path) if body is None else shell_text(body, context.variables)

    return read


def _started(command: ShellCommand, context: ScriptContext) -> ScriptEntry:
    """Read the command that trains, and the script that it runs."""
    variables = context.variables
    outer = launch_line(words_of_command(command, variables), variables, context.remarks, context.path)
    inner = context.shell_script(outer.program) if outer is not None and outer.starts_shell else None
    entry = ScriptEntry(outer)
    if outer is not None and inner is not None:
        text, shell, arguments = inner
        text = inner_text(command, text, variables)
        with with_arguments(variables, arguments):
            entry = script_entry(text, context.inner(), shell)
        entry.line = entry.line.within(outer) if entry.line is not None else outer
    before = {name: variables.assign(name, raw) for name, raw in command.assignments()}
    if entry.line is not None:
        entry.line.environment = before | entry.line.environment
    return entry


def _after(commands: Sequence[ShellCommand], chosen: ShellCommand, text: str, context: ScriptContext) -> None:
    """Say what becomes of the commands behind the program."""
    piped = chosen.after == "|"
    for command in commands:
        if command.construct is not None and command.construct is chosen.construct:
            continue
        says_nothing = not command.argv or prints(command.argv)
        written = text[command.start : command.end].strip()
        if piped:
            context.left_out(f"| {written}", "kubectl logs shows what the ranks print")
            piped = command.after == "|"
        elif not says_nothing and chosen.after == "&":
            why = "it ran beside the program, and nothing does here: what the program needs of it is to run elsewhere"
            context.remarks.warn(context.path, f"{short(written)}: {why}")
        elif not says_nothing:
            context.left_out(written, "nothing runs after the program, with whose end the pod ends")
