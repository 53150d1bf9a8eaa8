"""What is known while a script is read: its variables, its files, and where its remarks go."""

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from posixpath import basename
from typing import Final

from deepspeed_operator.cli.imports.expansion import MARK, Variables, expanded, shell_text
from deepspeed_operator.cli.imports.remarks import Remarks
from deepspeed_operator.cli.imports.shell import DECLARING, ShellCommand, assignment
from deepspeed_operator.dsconfig.wording import quoted

# What the agent tells the ranks, and nobody else is to set.
OURS: Final = frozenset(
    {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}
    | {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE"}
    | {"NNODES", "NPROC_PER_NODE", "PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR"}
    | {"PET_MASTER_PORT", "PET_RDZV_ENDPOINT", "PET_RDZV_BACKEND", "PET_RDZV_ID", "CROSS_RANK", "CROSS_SIZE"}
    | {"LOCAL_SIZE"}
)
# Those of them to which an argument can refer, whatever the script makes them.
REFERABLE: Final = frozenset({"MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "GROUP_RANK", "RANK", "WORLD_SIZE"})
PRINTING: Final = frozenset(
    {":", "cat", "date", "df", "echo", "env", "exit", "free", "hostname", "id", "ls", "lscpu", "nproc", "nvcc"}
    | {"nvidia-smi", "printenv", "printf", "pwd", "return", "set", "shopt", "trap", "true", "uptime", "wait", "which"}
    | {"whoami", "clear"}
)
WAITING: Final = frozenset({"hostname", "pdsh", "service", "sleep", "ssh", "ssh-keygen", "ssh-keyscan", "sshd"})
_SHELLS: Final = frozenset({"ash", "bash", "dash", "ksh", "sh", "zsh"})
_BEFORE_SHELLS: Final = frozenset({"--", "-g", "-s", "dumb-init", "exec", "tini"})
_ASKED: Final = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)")
_ARITHMETIC: Final = re.compile(r"\(\((.*?)\)\)", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_READS_ARRAY: Final = re.compile(r"(?:mapfile|readarray|read\s(?:.*\s)?-[a-z]*a)\s")
_DEEPEST: Final = 4


@dataclass(frozen=True, slots=True)
class ScriptContext:
    """What scripts are read with.

    `variables`: those of the pod, and what the script has assigned so far; `path`: where it stands, for the remarks.
    `file`: returns the text of a file in the container, None if that is not known.
    `batch`: the script is for a batch system's node, not for a container; `depth`: how many scripts it is within.
    """

    variables: Variables
    remarks: Remarks
    path: str
    file: Callable[[str], str | None]
    batch: bool = False
    depth: int = 0

    def inner(self) -> "ScriptContext":
        return replace(self, depth=self.depth + 1)

    def left_out(self, what: str, why: str) -> None:
        """Say that a piece of the script has no place in a job, and why."""
        self.remarks.left_out(self.path, f"{short(what)}: {why}")

    def changed(self, message: str) -> None:
        self.remarks.changed(self.path, message)

    def shell_script(self, words: Sequence[str]) -> tuple[str, str, Sequence[str]] | None:
        """Return script, shell and arguments, from $0 on, of `sh -c SCRIPT` or of a script that is known; else None."""
        words = list(words)
        while words and basename(words[0]) in _BEFORE_SHELLS:
            words = words[1:]
        if not words or self.depth >= _DEEPEST:
            return None
        if words[0] == "eval":
            return " ".join(words[1:]), "/bin/bash", _given(self.variables)
        if basename(words[0]) not in _SHELLS:
            text = self.file(words[0])
            is_shell = text is not None and re.match(r"#!.*sh\b", text)
            return (text, "/bin/bash", words) if text is not None and is_shell else None
        for at, word in enumerate(words[1:], 1):
            if re.fullmatch(r"-[a-z]*c[a-z]*", word):
                rest = words[at + 2 :] if words[at + 1 : at + 2] == ["--"] else words[at + 1 :]
                return (rest[0], words[0], rest[1:]) if rest else None
            if not word.startswith(("-", "+")) and re.fullmatch(r"[-+][a-z]*[oO]", words[at - 1]) is None:
                text = self.file(word)
                return None if text is None else (text, words[0], words[at:])
        return None


def prints(argv: Sequence[str]) -> bool:
    """Whether a command does nothing but print, or set the shell; `env NAME=VALUE COMMAND` runs another one."""
    name = basename(argv[0]) if argv else ""
    return name in PRINTING and (name != "env" or len(argv) == 1)


@contextmanager
def with_arguments(variables: Variables, arguments: Sequence[str]) -> Generator[None]:
    """Give a script its own arguments, from $0 on, while it is read."""
    before = _given(variables)
    for given in (arguments, before):
        for position in [name for name in variables.values if name.isdecimal()]:
            del variables.values[position]
        variables.values |= {str(position): argument for position, argument in enumerate(given)}
        if given is arguments:
            yield


def _given(variables: Variables) -> list[str]:
    return [variables.values[name] for name in sorted(filter(str.isdecimal, variables.values), key=int)]


def learnt(command: ShellCommand, variables: Variables) -> list[tuple[str, str, bool]] | None:
    """Note what a command assigns: names, values, and whether it exports them; None where it assigns nothing."""
    declares = bool(command.argv) and command.argv[0] in DECLARING
    exports = declares and (command.argv[0] == "export" or "-x" in command.argv)
    pairs = list(command.assignments()) if not command.argv else []
    if declares:
        pairs = [pair for word in command.argv[1:] if (pair := assignment(word)) is not None]
    if command.argv[:1] == [":"]:
        words_of_command(command, variables)  # `: ${NAME:=default}` assigns
        return []
    if command.argv[:1] == ["read"] and command.heredoc is not None and _NAME.fullmatch(command.argv[-1]):
        pairs = [(command.argv[-1], command.heredoc)]  # read -r -d '' NAME <<EOF
    if _READS_ARRAY.match(" ".join(command.argv)):
        variables.arrays.pop(command.argv[-1], None)
        variables.unknown_arrays.add(command.argv[-1])
    found: list[tuple[str, str, bool]] = []
    if command.construct is not None and command.construct.reads_arguments and "1" not in variables.values:
        return found  # without arguments it assigns nothing
    for name, raw in pairs:
        if command.construct is not None and _undecided(name, raw, command.construct.text, variables):
            continue
        value = variables.assign(name, raw)
        if name in REFERABLE and MARK in value:
            variables.values.pop(name, None)
            variables.present.add(name)
        found.append((name, value, exports and not raw.startswith("(")))
    return found if pairs or declares else None


def _undecided(name: str, raw: str, condition: str, variables: Variables) -> bool:
    """Note what a condition assigns, and return whether it is not taken: what was before is as likely."""
    trial = variables.copy()
    value = trial.assign(name, raw)
    if raw.startswith("("):
        if variables.arrays.get(name) != trial.arrays[name]:
            variables.doubtful.add(name)
        if name not in variables.arrays:
            variables.assign(name, raw)  # nothing else is known of it
        return True
    known, is_default = variables.values.get(name), _is_default(name, condition)
    if known or (known is not None and not is_default):
        if not is_default and value != known:
            variables.doubtful.add(name)
        return True
    if known is None or MARK in value:
        variables.conditional.add(name)
        if value.startswith("-") or " " in value:
            variables.options.add(name)
        return True
    return False


def _is_default(name: str, condition: str) -> bool:
    """Whether a condition gives a variable a value where it has none, as `if [ -z "$NAME" ]` does."""
    reference = rf"\"?\$\{{?{name}(?::?-)?\}}?\"?"
    tests = rf"-z\s+{reference}|-n\s+{reference}\s*\]+\s*\|\||{reference}\s*==?\s*(\"\"|'')|!\s+-v\s+{name}\b"
    return re.search(tests, condition) is not None


def names_asked(text: str) -> set[str]:
    """Return the names of the variables for which a piece of shell asks; in (( )) they stand by themselves."""
    return {*_ASKED.findall(text), *_NAME.findall(" ".join(_ARITHMETIC.findall(text)))}


def words_of_command(command: ShellCommand, variables: Variables) -> list[str]:
    """Return the arguments of a command, without the assignments in front of it."""
    return [word for raw in command.argv for word in expanded(raw, variables)]


def inner_text(command: ShellCommand, text: str, variables: Variables) -> str:
    """Return the script of `sh -c` or eval with what is not known as it is written; `text`: it as an argument."""
    if command.argv[:1] == ["eval"]:
        return " ".join(shell_text(raw, variables) for raw in command.argv[1:])
    raw = next((raw for raw in command.argv if expanded(raw, variables) == [text]), None)
    return text if raw is None else shell_text(raw, variables)


def short(text: str) -> str:
    """Return a piece of shell as messages show it: in one line, and short."""
    return quoted(" ".join(text.split()))[1:-1].replace('\\"', '"')
