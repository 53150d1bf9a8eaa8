"""What a script does before its program: kept as the trainer container's entrypoint, or said to have no place."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from posixpath import basename, isabs
from typing import Final

from deepspeed_operator.cli.imports.expansion import MARK, MARKED
from deepspeed_operator.cli.imports.launch_line import LaunchLine
from deepspeed_operator.cli.imports.script_context import (
    OURS,
    PRINTING,
    REFERABLE,
    WAITING,
    ScriptContext,
    learnt,
    names_asked,
    prints,
    short,
    words_of_command,
)
from deepspeed_operator.cli.imports.shell import JOINTS, Construct, ShellCommand, asks_for_arguments

_WAITS: Final = re.compile(r"\b(nslookup|getent|dig|ping|nc|ssh|sleep)\b|\bhost\s")
_OF_THE_IMAGE: Final = frozenset({"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_HOME"})
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_HOSTS: Final = re.compile(r"hostfile|/etc/(volcano|mpi)/|authorized_keys|known_hosts|/\.?ssh\b")
_ASKS_SLURM: Final = re.compile(r"\b(s(control|queue|acct|info|run|bcast)|SLURMD?_\w+)\b")
_SELF: Final = re.compile(r"'[^']*'|(\$(?:\{(?:0|BASH_SOURCE(?:\[0\])?)\}|(?:0|BASH_SOURCE)\b))")  # no awk's $0
_TEST: Final = re.compile(r"!?\s*(?:\[|test\s|\(\()")
_OPTIONS: Final = re.compile(r"(^|\s)--?\w|/.*\s")


@dataclass(slots=True)
class Prelude:
    """What is kept of the commands before the program.

    `kept`: them, and the operators behind them; `assigned`: names, and their assignments as they are written.
    `exported`: variables with values that are known; `directory`: where the script goes, if it says only that.
    """

    context: ScriptContext
    text: str
    kept: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    assigned: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    exported: dict[str, str] = field(default_factory=dict[str, str])
    directory: str | None = None
    prints: bool = False
    commands: Sequence[ShellCommand] = ()
    asked: set[str] = field(default_factory=set[str])  # the variables that the program's own words ask for
    unknown: list[str] = field(default_factory=list[str])  # exported by a batch script, with values of its cluster

    def read(self, commands: Sequence[ShellCommand], within: Construct | None) -> None:
        """Read the commands before the program; `within`: the construct that the program stands in, if any."""
        self.commands = commands
        seen: list[Construct] = [] if within is None else [within]
        for command in commands:
            construct = command.construct
            if construct is None:
                self._simple(command)
                continue
            assigned = learnt(command, self.context.variables)
            if construct is within and not _is_test(command) and (assigned is None or command.argv):
                why = "it stands in the loop or condition in which the program does, which is started by itself here"
                self.context.left_out(self.text[command.start : command.end].strip(), why)
            if construct not in seen:
                seen.append(construct)
                self._compound(construct)

    def _compound(self, construct: Construct) -> None:
        text = construct.text.strip()
        if self._only_assigns(construct):
            self._without(construct.after)
            return
        if construct.reads_arguments and not construct.is_function and "1" not in self.context.variables.values:
            self.context.left_out(text, "it is about the script's own arguments, which are taken as none")
        elif self.context.batch:
            self.context.left_out(text, "it is about the batch system's nodes, or cannot be told from that")
        elif _WAITS.search(text) and text.startswith(("until", "while", "for", "if")):
            self.context.left_out(text, "the agents wait for each other themselves")
        else:
            self.kept.append((text, construct.after))
            return
        self._without(construct.after)

    def _without(self, after: str) -> None:
        """Join what is kept where a command behind && or || is not: a test of which nothing hangs goes, too."""
        while self.kept and self.kept[-1][1] in JOINTS:
            text, _ = self.kept.pop()
            if after in JOINTS or not _TEST.match(text):
                self.kept.append((text, after if after in JOINTS else "\n"))
                return

    def _only_assigns(self, construct: Construct) -> bool:
        """Whether a construct does nothing but give variables values that are known without it."""
        inside = [each for each in self.commands if each.construct == construct]
        words = [each.argv[0] if each.argv else "" for each in inside]
        names = {name for each in inside for name, _ in each.assignments() if not each.argv}
        known = all(name in self.context.variables.values for name in names)
        return bool(names) and known and all(word in {"", "[", "[[", "test"} or word in PRINTING for word in words)

    def _simple(self, command: ShellCommand) -> None:
        written = self.text[command.start : command.end].strip()
        assignments = learnt(command, self.context.variables)
        kept = len(self.kept)
        if assignments is None:
            self._command(command, written)
        for name, value, exported in assignments or ():
            self._assignment(name, value, written, exported=exported)
        if len(self.kept) == kept:
            self._without(command.after)

    def _command(self, command: ShellCommand, written: str) -> None:
        argv = words_of_command(command, self.context.variables)
        name = basename(argv[0]) if argv else ""
        writes = ">" in written
        piped = "|" in {command.before, command.after}
        beside = any(after == "&" for _, after in self.kept)
        if name in WAITING or name.endswith("sshd"):
            self.context.left_out(written, "no ssh is needed, and the agents wait for each other")
        elif _HOSTS.search(written):
            self.context.left_out(written, "the operator writes the hostfile itself, and no ssh is needed")
        elif name == "rm":
            self.context.left_out(written, "whenever a pod starts it would delete what was saved before")
        elif (name == "exit" and command.before in JOINTS and not self.context.batch) or (name == "wait" and beside):
            self.kept.append((written, command.after))
        elif prints(argv) and not writes and not (piped and not self.context.batch):
            self.prints = self.prints or name != "set"
            if name == "set" and not self.context.batch:
                self.kept.append((written, "\n"))
        elif self.context.batch and name == "cd":
            self._directory(argv, written)
        elif self.context.batch and not _works_in_a_container(name, writes=writes):
            why = "it belongs to that cluster's nodes; what it prepares is the image's to have"
            self.context.left_out(written, why)
        else:
            self.kept.append((written, command.after))

    def _directory(self, argv: Sequence[str], written: str) -> None:
        if len(argv) == 2 and isabs(argv[1]) and MARK not in argv[1]:
            self.directory = argv[1]
            self.context.changed(f"{short(written)}: the container's workingDir, which the image or a volume must have")
        else:
            self.context.left_out(written, "a directory of that cluster; the image's working directory is taken")

    def _assignment(self, name: str, value: str, written: str, *, exported: bool) -> None:
        batch = self.context.batch
        if name in OURS:
            if exported or name in REFERABLE:
                self.context.left_out(name, "the agent tells it to the ranks, as it is in this run")
        elif name.startswith("SLURM_") or (batch and name in _OF_THE_IMAGE):
            self.context.left_out(name, "of that cluster's file system; the image has its own")
        elif name == "CUDA_VISIBLE_DEVICES":
            self.context.left_out(name, "a pod sees the devices that it was given")
        elif exported and MARK not in value and name not in _OF_THE_IMAGE:
            self.exported[name] = value
        else:
            self.assigned.append((name, written))
            if exported and batch:
                self.unknown.append(name)
            elif exported:
                self.kept.append((written, "\n"))

    def finish(self, line: LaunchLine) -> str:
        """Return the shell that is to run before the program of this line, whose words are changed to need it."""
        exports = self._exports(line)
        if self.context.variables.asks_for_arguments:
            why = "the script's own arguments, which are taken as none; write what they were into spec.training.args"
            self.context.left_out("$1, $@", why)
            self.context.variables.asks_for_arguments = False
        self._doubts()
        used = self.context.variables.used
        composed = {written for name, written in self.assigned if name in used and not exports}
        self.kept = [each for each in self.kept if each[0] not in composed]
        if all(text.startswith("set ") for text, _ in self.kept) and not exports:
            self.kept.clear()
        if len(self.kept) == 1 and re.fullmatch(r"cd /[^\s$`*?;&|]*", self.kept[0][0]):
            self.directory = self.kept.pop()[0].removeprefix("cd ")
            self.context.changed(f"cd {self.directory}: the container's workingDir")
        for name in self.unknown:
            if name not in used:
                self.context.left_out(name, "what it is, only that cluster knows")
        if self.prints:
            self.context.left_out("commands that only print", "kubectl logs shows what the ranks print")
        if not self.kept and not exports:
            return ""
        why = "what the script does before the program is the trainer container's command, which each pod runs once"
        self.context.changed(why)
        needed = self._needed(exports)
        for text in [*needed, *(text for text, _ in exports)]:
            if self.context.batch and _ASKS_SLURM.search(text):
                why = "no pod has SLURM, so that it is empty there: write what it stands for into spec.training"
                self.context.remarks.warn(self.context.path, f"{short(text)}: {why}")
        before = [(text, "\n") for text in needed if (text, "\n") not in self.kept]
        return self._function_of(self._named("".join(map(_joined, [*before, *self.kept, *exports])).strip()))

    def _doubts(self) -> None:
        """Warn of what the program's words are composed of, where only the script that runs knows it."""
        variables, composing = self.context.variables, self._composing()
        for name in sorted(composing & variables.doubtful - OURS):
            words = variables.arrays.get(name) or [variables.values.get(name, "its default")]
            value = short(" ".join(words).replace(MARK, ""))
            self.context.remarks.warn(
                self.context.path,
                f"{name}: a condition of the script decides it; here it is {value or 'empty'}",
            )
        for name in sorted(composing & variables.unknown_arrays):
            why = "an array that nothing in the file says: its words are none here; write them into spec.training.args"
            self.context.remarks.warn(self.context.path, f"{name}: {why}")
        for name in sorted(composing & variables.used & variables.conditional - variables.values.keys()):
            if not any(re.search(rf"\b{name}\+?=", text) for text, _ in self.kept):
                why = "a condition that is left out decides it, so that it is empty here: write what it is to be"
                self.context.remarks.warn(self.context.path, f"{name}: {why}")
            elif name in variables.options:
                why = "a condition decides it, and it is one argument here, empty where it is not set: write what it is"
                self.context.remarks.warn(self.context.path, f"{name}: {why}")

    def _named(self, script: str) -> str:
        """Return the shell with the script's own path in place of $0, which is another one's there."""
        path = self.context.variables.values.get("0")
        named = _SELF.sub(lambda match: match[0] if match[1] is None else path or match[0], script)
        if path is None and any(match[1] for match in _SELF.finditer(script)):
            why = (
                "where the script lies, no pod knows: write that directory into it, or into the container's workingDir"
            )
            self.context.remarks.warn(self.context.path, f"$0, BASH_SOURCE: {why}")
        return named

    def _function_of(self, script: str) -> str:
        """Return the script as a function where it asks for arguments: those of the entrypoint are the program."""
        if not asks_for_arguments(script):
            return script
        arguments = map(shlex.quote, self.context.variables.arguments())
        joint = " &&" if script.endswith("&&") else ""
        return f"before() {{\n{script.removesuffix('&&').strip()}\n}}\n{' '.join(['before', *arguments])}{joint}"

    def environment(self) -> dict[str, str]:
        """Return the exported variables, without those of which only the command line was composed."""
        used = self.context.variables.used
        return {name: value for name, value in self.exported.items() if name not in used or not _OPTIONS.search(value)}

    def _needed(self, exports: Sequence[tuple[str, str]]) -> list[str]:
        """Return the assignments on which what is kept depends."""
        texts = [*(text.partition("=")[2] for text, _ in exports), *(text for text, _ in self.kept)]
        needed: list[str] = []
        for name, written in reversed(self.assigned):
            if not any(name in names_asked(text) for text in texts):
                continue
            known = self.context.variables.values.get(name)
            is_plain = known is not None and MARK not in known and "$" not in known
            # As it is where the script has no arguments.
            assignment = f"{name}={shlex.quote(known)}" if known is not None and is_plain else written
            if assignment not in needed:
                needed.insert(0, assignment)
                texts.append(assignment)
        return needed

    def _composing(self) -> set[str]:
        """Return the variables of which the program's words are composed, and those of these."""
        names = set(self.asked)
        assignments = [match for each in self.commands for word in each.words if (match := _ASSIGNMENT.match(word))]
        for match in reversed(assignments):
            if match[1] in names:
                names |= names_asked(match[2])
        return names

    def _exports(self, line: LaunchLine) -> list[tuple[str, str]]:
        """Make variables of the pieces of arguments that only a shell knows, and return how they are set."""
        exports: dict[str, str] = {}

        def reference(match: re.Match[str]) -> str:
            raw = match[1]
            value = raw if raw.startswith(("$", "`")) else f"$(echo {raw})"
            simple = re.fullmatch(r"\$\{(\w+)\}", raw)
            name = simple[1] if simple else exports.get(value, f"ARGUMENT_{len(exports) + 1}")
            exports[value] = name
            return f"$({name})"

        def rewritten(words: list[str]) -> list[str]:
            return [text for word in words if (text := MARKED.sub(reference, word)) or not word]

        line.program, line.args = rewritten(line.program), rewritten(line.args)
        if line.once_a_pod is not None:
            line.once_a_pod = rewritten(line.once_a_pod)
        line.environment = {name: value for name, value in line.environment.items() if MARK not in value}
        return [
            (f"export {name}={value}" if value != f"${{{name}}}" else self._exported(name), "\n")
            for value, name in exports.items()
        ]

    def _exported(self, name: str) -> str:
        """Return how a variable of the script is exported, also where a condition may not set it."""
        return f'export {name}="${{{name}-}}"' if name in self.context.variables.conditional else f"export {name}"


def _joined(kept: tuple[str, str]) -> str:
    text, after = kept
    return f"{text} &\n" if after == "&" else f"{text} {after} " if after in JOINTS else f"{text}\n"


def _works_in_a_container(name: str, *, writes: bool) -> bool:
    """Whether a command of a batch script means the same in a pod."""
    return name in {"pip", "pip3", "mkdir"} or (name in {"cat", "echo", "printf", "tee"} and writes)


def _is_test(command: ShellCommand) -> bool:
    """Whether a command only decides, says how often, or prints."""
    first = "".join(command.argv[:1])
    return first in {"[", "[[", "case", "for", "select", "test"} or first.startswith("((") or prints(command.argv)
