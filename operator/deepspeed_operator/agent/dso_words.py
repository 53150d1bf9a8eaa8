"""Why a program ended by its own output: the line that says so, freed of what is for a terminal."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CARETS = re.compile(r"^\s*[~^]+\s*$")
# What torch puts before the lines of a traceback, and torchrun before all lines that it passes on.
_PREFIX = re.compile(r"^(?:\[(?:rank|default)\d+\]: ?)+", re.MULTILINE)

# The line that ends a traceback: the exception's name, dotted, and its text.
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: .*)?$")
# A launcher's own exception says no more than that a rank failed, whose words stand before it.
_OF_A_LAUNCHER = re.compile(r"^(?:\S+\.)?(?:ChildFailedError|CalledProcessError)\b")
_NCCL = re.compile(r"^Last error:\n(\S.*)", re.MULTILINE)
_ROOT_CAUSE = re.compile(r"^Root Cause .*?^\s+rank\s*: (\d+).*?^\s+exitcode\s*: (-?\d+)(.*)", re.MULTILINE | re.DOTALL)
_RECORDED = re.compile(r"^ +((?:\w+\.)*\w+(?:Error|Exception|Exit|Interrupt)(?:: .*)?)$", re.MULTILINE)

_ABORT = re.compile(r"^\s*what\(\):\s+(.*)$", re.MULTILINE)
_FATAL = re.compile(r"^(?:Fatal Python error: .*|terminate called .*)$", re.MULTILINE)
# An uncaught exception without a traceback: a syntax error, or one that another library has framed.
_UNCAUGHT = re.compile(r"^(?:\w+\.)*\w*Error: .*$", re.MULTILINE)
_COMPLAINT = re.compile(
    r"^(?:\S+: (?:fatal )?error: .+"  # argparse
    r"|Error: .+"  # click
    r"|(?:\S*/)?(?:ba|da|z|k|a)?sh: .+|\S+: (?:line )?\d+: .+"  # a shell, and a shell's script
    r"|\S*python[\d.]*: (?:can't|No module|Error|error).+)$",  # the interpreter itself
    re.MULTILINE,
)
# Launchers report the ranks that they end, and hydra and torchrun how to get more.
_OF_OTHERS = re.compile(r"\[launch\.py:\d+:|HYDRA_FULL_ERROR|^[=\-╭╰│─]|^\[deepspeed-operator\]")


def legible(data: bytes) -> str:
    """Output as a terminal would show it at the end, without colours and the carets below a traceback's lines."""
    text = _ESCAPE.sub("", data.decode("utf-8", "replace").lstrip("\ufffd")).replace("\r\n", "\n")
    lines = (line.rpartition("\r")[2] for line in text.split("\n"))  # a progress bar is its last state
    return "\n".join(line for line in lines if not _CARETS.match(line))


def last_words(code: int, output: str) -> str:
    """Why a program ended that was not killed, in its words: if none are known for that, its last line in quotes."""
    text = _PREFIX.sub("", output)
    # Python exits with 1 after an uncaught exception; with another code, a traceback in the log was handled.
    known = _first_failure(output) or traceback_line(text) if code == 1 else ""
    return known or _last(_COMPLAINT, text) or _report(output) or _last_line(text)


def dying_words(output: str) -> str:
    """Why a program aborted, in its words."""
    text = _PREFIX.sub("", output)
    return _last(_ABORT, text) or _last(_FATAL, text)


def rank_of(output: str) -> int | None:
    """The rank that a launcher's log names: by torchrun's report, else by torch's [rankN] before a traceback."""
    reports = _ROOT_CAUSE.findall(output)
    ranks = [each[0] for each in reports] or re.findall(r"^\[rank(\d+)\]: Traceback", output, re.MULTILINE)
    return int(ranks[-1]) if ranks else None


def traceback_line(text: str) -> str:
    """The exception of the last traceback that is not a launcher's."""
    for block in reversed(text.split("Traceback (most recent call last):\n")[1:]):
        line = next((line for line in block.splitlines() if _EXCEPTION.match(line)), "")
        if line and not _OF_A_LAUNCHER.match(line):
            reason = _NCCL.search(block)
            return f"{line}: {reason[1]}" if reason else line
    uncaught = [line for line in _UNCAUGHT.findall(text) if not _OF_A_LAUNCHER.match(line)]
    return uncaught[-1] if uncaught else ""


def _first_failure(output: str) -> str:
    """The exception of the rank that by torchrun's report failed first."""
    match = _ROOT_CAUSE.search(output)
    if not match:
        return ""
    recorded = _RECORDED.findall(match[3])
    own = re.findall(rf"^\[(?:rank|default){match[1]}\]: ?(.*)", output, re.MULTILINE)
    return recorded[-1] if recorded else traceback_line("\n".join(own))


def _report(output: str) -> str:
    match = _ROOT_CAUSE.search(output)
    if not match:
        return ""
    end = f"was killed by signal {match[2][1:]}" if match[2].startswith("-") else f"exited with code {match[2]}"
    return f"by torchrun's report rank {match[1]} failed first and {end}"


def _last(pattern: re.Pattern[str], text: str) -> str:
    matches = pattern.findall(text)
    return str(matches[-1]).strip() if matches else ""


def _last_line(text: str) -> str:
    lines = (line.rstrip() for line in reversed(text.splitlines()) if not _OF_OTHERS.search(line))
    last = next((line for line in lines if line and not line[0].isspace()), "")
    return f'"{last[:200]}"' if last else ""
