"""Why a program ended by its own output: the line that says so, freed of what is for a terminal."""

from __future__ import annotations

import re
from typing import NamedTuple

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CARETS = re.compile(r"^\s*[~^]+\s*$")
# What torch puts before the lines of a traceback, and torchrun before all lines that it passes on.
_PREFIX = re.compile(r"^(?:\[(?:rank|default)\d+\]: ?)+", re.MULTILINE)
# What pdsh, mpirun, srun and ray put before each line of a process, by lines that none of these begins with itself.
_PASSED_ON = re.compile(
    r"^(?!\[(?:rank|default)\d+\])(\S[^\n]{0,100}?)(?:\[(?:rank|default)\d+\]: ?)*"
    r"(?:Traceback \(most recent call last\)|terminate called )[^\n]*\n\1",
    re.MULTILINE,
)

# The line that ends a traceback: the exception's name, dotted, and its text.
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: .*)?$")
# A launcher's own exception says no more than that a rank failed, whose words stand before it.
_OF_A_LAUNCHER = re.compile(r"^(?:\S+\.)?(?:ChildFailedError|CalledProcessError)\b")
_NCCL = re.compile(r"^Last error:\n(\S.*)", re.MULTILINE)
_TRACEBACK = re.compile(r"^.*Traceback \(most recent call last\)(?::| ─+╮)\n", re.MULTILINE)
# What is printed and ends no program: of a destructor, another thread, a log handler or a task.
_ASIDE = re.compile(r"Exception (?:ignored |in (?:thread|callback) )|--- Logging error|Error in atexit|future: <Task")
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
# The end of a traceback whose head is lost, rich's frame among it.
_CUT = re.compile(r"\s+File \"|(?:[^\n]*\n)?│")
_BROKEN = 60  # columns: what rich breaks is longer
_OF_MPIRUN = re.compile(r"^mpirun noticed that process rank (\d+) ", re.MULTILINE)
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
    """Output as a terminal would show it at the end.

    It has no colours, no carets below a traceback's lines, and no names of processes before its lines but torch's.
    """
    text = _ESCAPE.sub("", data.decode("utf-8", "replace").lstrip("\ufffd")).replace("\r\n", "\n")
    names = "|".join(re.escape(name) for name in set(_PASSED_ON.findall(text)))
    text = re.sub(f"^(?:{names})", "", text, flags=re.MULTILINE) if names else text
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


def rank_of(output: str, words: str = "") -> int | None:
    """The rank that a launcher's log names: that ended by `words`, else by the launcher's report, else the last one."""
    reported = [match[1] for match in _ROOT_CAUSE.finditer(output)][-1:] or _OF_MPIRUN.findall(output)[-1:]
    own = uncaught(output)
    said = [rank for rank, raised in own if raised.text == words]
    ranks = [rank for rank in reported if rank in said] or said[:1] or reported or [rank for rank, _ in own][-1:]
    return int(ranks[0]) if ranks else None


def plain(output: str) -> str:
    """Output without the names of ranks before its lines."""
    return _PREFIX.sub("", output)


class Raised(NamedTuple):
    text: str
    places: list[str]  # where it went through, as `path:function`, the last one where it was raised
    follows: bool  # from the one before it
    aside: bool


def chain(text: str) -> list[Raised]:
    """The exception of the last traceback that is not a launcher's, behind those that led to it."""
    linked: list[Raised] = []
    every = _tracebacks(text)
    for raised in [each for each in every if not each.aside] or every:
        linked = [*linked, raised] if raised.follows else [raised]
    return linked


def exceptions(text: str) -> list[Raised]:
    """Those of all tracebacks that are not a launcher's, in their order; none of a destructor's or a thread's."""
    return [each for each in _tracebacks(text) if not each.aside]


def last_exceptions(text: str) -> list[Raised]:
    """Of these, those that no further one follows: what led to one was handled."""
    every = exceptions(text)
    return [each for at, each in enumerate(every) if not any(after.follows for after in every[at + 1 : at + 2])]


def uncaught(output: str) -> list[tuple[str, Raised]]:
    """The exceptions that ended ranks, each behind its rank's number: torch names it before those lines alone."""
    lines: dict[str, list[str]] = {}
    for rank, line in re.findall(r"^\[rank(\d+)\]: ?(.*)", output, re.MULTILINE):
        lines.setdefault(rank, []).append(line)
    chains = [(rank, chain("\n".join(own))) for rank, own in lines.items()]
    return [(rank, linked[-1]) for rank, linked in chains if linked]


def traceback_line(text: str) -> str:
    """The exception of the last traceback that is not a launcher's."""
    linked = chain(text)
    if linked:
        return linked[-1].text
    lines = [line for line in _UNCAUGHT.findall(text) if not _OF_A_LAUNCHER.match(line)]
    reason = _NCCL.search(text) if lines and lines[-1].startswith("nccl") else None
    return f"{lines[-1]}: {reason[1]}" if reason else (lines or [""])[-1]


def is_exception(words: str) -> bool:
    return bool(_EXCEPTION.match(words))


def is_complaint(words: str) -> bool:
    return bool(_COMPLAINT.match(words))


def reported_end(output: str) -> int | None:
    """How by torchrun's report the rank that failed first has ended: its exit code, or minus its signal."""
    match = _ROOT_CAUSE.search(output)
    return int(match[2]) if match else None


def _tracebacks(text: str) -> list[Raised]:
    """Those that are not a launcher's. The log may begin within the first."""
    heads = list(_TRACEBACK.finditer(text))
    begins = [(head.start(), head.end()) for head in heads]
    if _CUT.match(text):
        begins.insert(0, (0, 0))
    found: list[Raised] = []
    for number, (start, begin) in enumerate(begins):
        end = begins[number + 1][0] if number + 1 < len(begins) else len(text)
        block, head = text[begin:end], text[start:begin]
        lines = block.splitlines()
        at = next((place for place, line in enumerate(lines) if _EXCEPTION.match(line)), None)
        if at is None or _OF_A_LAUNCHER.match(lines[at]):
            continue
        line, reason = _message(lines[at:], "\n╰─" in f"\n{block}"), _NCCL.search(block)
        before = text[begins[number - 1][1] if number else 0 : start]
        follows = bool(found and (_LINK.search(before) or "Original Traceback" in head))
        aside = bool(_ASIDE.match(before.rstrip().rpartition("\n")[2]) or (follows and found[-1].aside))
        places = [f"{one or two}:{name or other}" for one, name, two, other in _PLACE.findall("\n".join(lines[:at]))]
        found.append(Raised(f"{line}: {reason[1]}" if reason else line, places, follows, aside))
    return found


def _message(lines: list[str], framed: bool) -> str:
    """An exception with its text, which may begin on the next line; rich breaks long ones where a word ends."""
    text = lines[0].rstrip()
    if text.endswith(":"):
        return " ".join([text, next((more.strip() for more in lines[1:] if more.strip()), "")]).rstrip()
    for last, line in zip(lines, lines[1:6]):
        if not framed or len(last) < _BROKEN or not line.strip():
            break
        text = f"{text} {line.strip()}"
    return text


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
