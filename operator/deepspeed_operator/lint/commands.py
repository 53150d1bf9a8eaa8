"""Which programs a command starts, as far as its words tell: behind shells, wrappers, assignments and `python -m`."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from posixpath import basename
from typing import Final

_LAUNCHER_MODULES: Final = {
    "torch.distributed.run": ("torchrun",),
    "torch.distributed.launch": ("torchrun",),
    "deepspeed.launcher.runner": ("deepspeed",),
    "accelerate.commands.launch": ("accelerate", "launch"),
    "accelerate.commands.accelerate_cli": ("accelerate",),
}
_LAUNCHERS: Final = {
    "torchrun": "torchrun",
    "deepspeed": "deepspeed",
    "deepspeed.pt": "deepspeed",
    "ds": "deepspeed",
    "accelerate-launch": "accelerate launch",
    "mpirun": "mpirun",
    "mpiexec": "mpirun",
    "horovodrun": "horovodrun",
    "llamafactory-cli": "llamafactory-cli",
    "swift": "swift",
    "composer": "composer",
}
# Programs of which one command launches, and the others do not.
_SUBCOMMANDS: Final = {
    "accelerate": {"launch"},
    "axolotl": {"train"},
    "colossalai": {"run"},
    "fabric": {"run"},
    "lightning": {"run"},
    "ray": {"job", "start", "submit"},
    "tune": {"run"},
    "xtuner": {"train"},
}
_SHELLS: Final = frozenset({"ash", "bash", "dash", "ksh", "sh", "zsh"})
_PYTHON: Final = re.compile(r"python[\d.]*")
_WRAPPERS: Final = frozenset(
    {"catchsegv", "chrt", "command", "conda", "dumb-init", "env", "exec", "gosu", "mamba", "micromamba", "nice"}
    | {"nohup", "nsys", "numactl", "pipenv", "pixi", "poetry", "setsid", "stdbuf", "sudo", "taskset", "time"}
    | {"timeout", "tini", "unbuffer", "uv", "xvfb-run"}
)
# What prepares or tidies up, and trains nothing.
_HARMLESS: Final = frozenset(
    {
        "cat",
        "cd",
        "chmod",
        "cp",
        "date",
        "echo",
        "env",
        "export",
        "hostname",
        "ls",
        "mkdir",
        "nvidia-smi",
        "pip",
        "pip3",
    }
    | {"printenv", "pwd", "set", "sleep", "tee", "true", "ulimit", "umask", "unset", "wait", "which"}
)
_KEYWORDS: Final = frozenset({"!", "{", "}", "case", "do", "done", "elif", "else", "esac", "fi", "for", "function"}) | {
    "if",
    "in",
    "select",
    "then",
    "until",
    "while",
}
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=")


@dataclass(frozen=True, slots=True)
class Launch:
    """A program that starts ranks: its name, its arguments, and whether it is all that the command can train with."""

    name: str
    arguments: tuple[str, ...]
    alone: bool


def launches(words: Sequence[str]) -> list[Launch]:
    """Return the launchers that a command of these words starts. What cannot be read starts none that is known."""
    try:
        started = list(_commands(words))
    except ValueError:  # no shell would read it, or it is beyond shlex
        return []
    found = [(name, rest) for argv in started for name, rest in _launcher(argv)]
    others = [argv for argv in started if basename(argv[0]) not in _HARMLESS]
    return [Launch(name, tuple(rest), alone=len(others) == 1) for name, rest in found]


def assigned(words: Sequence[str]) -> frozenset[str]:
    """Return the names of variables that a command sets itself, or may set."""
    return frozenset(name for word in words for name in re.findall(r"\b([A-Za-z_]\w*)=", word))


def referenced(words: Sequence[str]) -> frozenset[str]:
    """Return the names of variables that these words ask for, as a shell does or as Kubernetes does."""
    return frozenset(name for word in words for name in re.findall(r"\$[({]?([A-Za-z_]\w*)", word))


def _commands(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the simple commands, each without what only wraps it."""
    argv = _unwrapped(list(words))
    if not argv:
        return
    script = _script(argv)
    if script is None:
        yield argv
        return
    for command in _split(script):
        yield from _commands(command)


def _unwrapped(argv: list[str]) -> list[str]:
    while argv and _ASSIGNMENT.match(argv[0]):
        argv = argv[1:]
    if argv and basename(argv[0]) in _WRAPPERS:
        inner = next((at for at in range(1, len(argv)) if _starts_others(argv[at])), None)
        if inner is not None:
            return _unwrapped(argv[inner:])
    return argv


def _starts_others(word: str) -> bool:
    name = basename(word)
    return name in _LAUNCHERS or name in _SUBCOMMANDS or name in _SHELLS or bool(_PYTHON.fullmatch(name))


def _script(argv: list[str]) -> str | None:
    """Return what a shell is to run, where that is among its arguments."""
    if basename(argv[0]) not in _SHELLS:
        return None
    for at, word in enumerate(argv[1:-1], 1):
        if re.fullmatch(r"-[a-z]*c[a-z]*", word):
            return argv[at + 1]
        if not word.startswith(("-", "+")) and argv[at - 1] != "-o":
            return None
    return None


def _split(script: str) -> Iterator[list[str]]:
    text = script.replace("\\\n", " ")
    text = re.sub(r"\$\(which ([-\w.]+)\)", r"\1", text)
    text = re.sub(r"\$\((\w+)\)", r"${\1}", text)  # Kubernetes' form, which the agent replaces first
    text = re.sub(r"\$\(\([^()]*\)\)|\$\([^()]*\)|`[^`]*`", "$_", text)
    text = re.sub(r"(?m)(^|\s)#[^'\"\n]*$", r"\1", text)
    text = re.sub(r"\d?>&\d|&>>?|\d?>>?|<(?![<(])", " > ", text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    command: list[str] = []
    words = iter(lexer)
    for word in words:
        if set(word) <= set(";&|()\n"):
            yield command
            command = []
        elif word == ">":
            next(words, None)
        elif not command and word in _KEYWORDS:
            yield [word]  # what follows may happen or not
        else:
            command.append(word)
    yield command


def _launcher(argv: list[str]) -> Iterator[tuple[str, list[str]]]:
    name, rest = basename(argv[0]), argv[1:]
    if _PYTHON.fullmatch(name):
        yield from _launcher(_module(rest))
    elif name in _LAUNCHERS:
        yield _LAUNCHERS[name], rest
    elif rest and rest[0] in _SUBCOMMANDS.get(name, ()):
        yield (name if name == "ray" else f"{name} {rest[0]}"), rest[1:]


def _module(rest: list[str]) -> list[str]:
    """Return what Python runs of these arguments, named as its own command would be."""
    for at, word in enumerate(rest):
        if word == "-m":
            return [*_LAUNCHER_MODULES.get("".join(rest[at + 1 : at + 2]), ("a module",)), *rest[at + 2 :]]
        if not word.startswith("-") and (at == 0 or rest[at - 1] not in {"-X", "-W"}):
            return rest[at:] if basename(word) in {*_LAUNCHERS, *_SUBCOMMANDS} else ["a script"]
    return ["nothing"]
