"""Why a program ended by its own output: the line that says so, freed of what is for a terminal."""

from __future__ import annotations

import re
from typing import NamedTuple

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CARETS = re.compile(r"^\s*[~^]+\s*$")
# What torch puts before the lines of a traceback, and torchrun before all lines that it passes on.
_PREFIX = re.compile(r"^(?:\[(?:rank|default)\d+\]: ?)+", re.MULTILINE)

# The line that ends a traceback: the exception's name, dotted, and its text.
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: .*)?$")
# A launcher's own exception says no more than that a rank failed, whose words stand before it.
_OF_A_LAUNCHER = re.compile(r"^(?:\S+\.)?(?:ChildFailedError|CalledProcessError)\b")
_NCCL = re.compile(r"^Last error:\n(\S.*)", re.MULTILINE)
_TRACEBACK = re.compile(r"^.*Traceback \(most recent call last\):\n", re.MULTILINE)
_LINK = re.compile(
    r"(?:direct cause of the following exception|another exception occurred):\n\s*\Z|\A.*Original Traceback",
    re.MULTILINE,
)
# Python's, and what rich frames.
_PLACE = re.compile(r'File "(.+?)", line \d+, in (\S+)|│ (\S+?\.py):\d+ in\s+(?:│\s*){0,2}(\S+)')
_ROOT_CAUSE = re.compile(
    r"^Root Cause [^\n]*\n(?:(?![ \t]*rank[ \t]*:)[^\n]*\n){0,9}[ \t]+rank[ \t]*: (\d+)[^\n]*\n"
    r"(?:(?![ \t]*exitcode)[^\n]*\n){0,9}[ \t]+exitcode[ \t]*: (-?\d+)(.*)",
    re.MULTILINE | re.DOTALL,
)
_RECORDED = re.compile(r"^ +((?:\w+\.)*\w+(?:Error|Exception|Exit|Interrupt)(?:: .*)?)$", re.MULTILINE)

_ABORT = re.compile(r"^\s*what\(\):\s+(.*)$", re.MULTILINE)
_FATAL = re.compile(r"^(?:Fatal Python error: .*|terminate called .*|.*: Assertion `.*' failed\.)$", re.MULTILINE)
# How torch's own log begins a line after which it aborts.
_LOGGED = re.compile(r"^\[F[\d :.]*\S+\.cpp:\d+\] (.*)$", re.MULTILINE)
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
    text = plain(output)
    # Python exits with 1 after an uncaught exception; with another code, a traceback in the log was handled.
    known = _first_failure(output) or traceback_line(text) if code == 1 else ""
    return known or _last(_COMPLAINT, text) or _report(output) or _last_line(text)


def dying_words(output: str) -> str:
    """Why a program aborted, in its words."""
    text = plain(output)
    return _last(_ABORT, text) or _last(_LOGGED, text) or _last(_FATAL, text)


def rank_of(output: str) -> int | None:
    """The rank that a launcher's log names: by torchrun's report, else by torch's [rankN] before a traceback."""
    reports = _ROOT_CAUSE.findall(output)
    ranks = [each[0] for each in reports] or re.findall(r"^\[rank(\d+)\]: Traceback", output, re.MULTILINE)
    return int(ranks[-1]) if ranks else None


def plain(output: str) -> str:
    """Output without the names of ranks before its lines."""
    return _PREFIX.sub("", output)


class Raised(NamedTuple):
    text: str
    places: list[str]  # where it went through, as `path:function`, the last one where it was raised


def chain(text: str) -> list[Raised]:
    """The exception of the last traceback that is not a launcher's, behind those that led to it."""
    linked: list[Raised] = []
    for raised, follows in _tracebacks(text):
        linked = [*linked, raised] if follows else [raised]
    return linked


def exceptions(text: str) -> list[str]:
    """Those of all tracebacks that are not a launcher's, in their order."""
    return [raised.text for raised, _ in _tracebacks(text)]


def traceback_line(text: str) -> str:
    """The exception of the last traceback that is not a launcher's."""
    linked = chain(text)
    if linked:
        return linked[-1].text
    uncaught = [line for line in _UNCAUGHT.findall(text) if not _OF_A_LAUNCHER.match(line)]
    return uncaught[-1] if uncaught else ""


def is_exception(words: str) -> bool:
    return bool(_EXCEPTION.match(words))


def is_complaint(words: str) -> bool:
    return bool(_COMPLAINT.match(words))


def reported_end(output: str) -> int | None:
    """How by torchrun's report the rank that failed first has ended: its exit code, or minus its signal."""
    match = _ROOT_CAUSE.search(output)
    return int(match[2]) if match else None


def _tracebacks(text: str) -> list[tuple[Raised, bool]]:
    """Each with whether it follows from the one before. The log may begin within the first."""
    heads = list(_TRACEBACK.finditer(text))
    begins = [(head.start(), head.end()) for head in heads]
    if re.match(r"\s+File \"", text):
        begins.insert(0, (0, 0))
    found: list[tuple[Raised, bool]] = []
    for number, (start, begin) in enumerate(begins):
        end = begins[number + 1][0] if number + 1 < len(begins) else len(text)
        block = text[begin:end]
        lines = block.splitlines()
        at = next((place for place, line in enumerate(lines) if _EXCEPTION.match(line)), None)
        if at is None or _OF_A_LAUNCHER.match(lines[at]):
            continue
        line = lines[at].rstrip()
        if line.endswith(":"):  # a message that begins on the next line
            line = " ".join([line, next((more.strip() for more in lines[at + 1 :] if more.strip()), "")]).rstrip()
        reason = _NCCL.search(block)
        before = text[begins[number - 1][1] if number else 0 : start]
        follows = bool(found and (_LINK.search(before) or "Original Traceback" in text[start:begin]))
        places = [f"{one or two}:{name or other}" for one, name, two, other in _PLACE.findall("\n".join(lines[:at]))]
        found.append((Raised(f"{line}: {reason[1]}" if reason else line, places), follows))
    return found


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
