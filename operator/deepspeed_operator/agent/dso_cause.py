"""Why a rank ended, in words, and the termination message that carries it to the operator."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

from dso_plan import Cause

MESSAGE_BYTES = 4000
OBJECT_BYTES = 1000

# The line that ends a traceback: the exception's name, dotted, and its text.
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: .*)?$")
_ABORT = re.compile(r"^(?:Fatal Python error: .*|\s*what\(\): .*)$", re.MULTILINE)
# What the interpreter itself says when there is no such program, and of a syntax error, both without a traceback.
_PYTHON = re.compile(r"^(?:\S*python\S*: (.*)|((?:\w+\.)*\w*Error: .*))$", re.MULTILINE)


def signature(code: int, tail: bytes, error_file: str | None, out_of_memory: bool) -> str:
    """One line for status: what the rank said of its end, else how it ended. `code` as subprocess gives it."""
    recorded = _recorded(error_file)
    if recorded:
        return recorded
    text = tail.decode("utf-8", "replace")
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "a real-time signal"
        words = f"killed by signal {-code} ({name})"
        if out_of_memory:
            return words + ": the container ran out of memory"
        last_words = _ABORT.findall(text)
        return (
            words + (": out of memory?" if code == -9 else "") + (f": {last_words[-1].strip()}" if last_words else "")
        )
    # Python exits with 1 after an uncaught exception; with another code, a traceback in the log was handled.
    found = traceback_line(text) if code == 1 else ""
    return found or f"exit code {code}"


def rank_of(tail: bytes) -> int | None:
    """The rank that a launcher's log names: torch puts [rankN] before each line of a traceback."""
    found = re.findall(rb"^\[rank(\d+)\]: Traceback", tail, re.MULTILINE)
    return int(found[-1]) if found else None


def launcher_code(code: int, tail: bytes) -> int:
    """DeepSpeed's launcher exits with 247 when a rank was killed by signal 9; its log says which it was."""
    killed = re.findall(rb"exits with return code = -(\d+)$", tail, re.MULTILINE)
    return -int(killed[-1]) if killed and code == 256 - int(killed[-1]) else code


def traceback_line(text: str) -> str:
    text = re.sub(r"^\[rank\d+\]: ?", "", text, flags=re.MULTILINE)
    _, found, after = text.rpartition("Traceback (most recent call last):\n")
    for line in after.splitlines() if found else ():
        if not line.startswith(" ") and _EXCEPTION.match(line):
            return line
    said = _PYTHON.findall(text)
    return said[-1][0] or said[-1][1] if said else ""


def _recorded(error_file: str | None) -> str:
    """What torch's @record wrote about the exception."""
    try:
        with open(error_file or "", encoding="utf-8") as file:
            message: Any = json.load(file)["message"]
        return str(message if isinstance(message, str) else message["message"]).strip().splitlines()[-1]
    except (OSError, ValueError, LookupError, TypeError):
        return ""  # most programs write none


def exit_code(cause: Cause | None) -> int:
    if cause is None:
        return 0
    return cause["exitCode"] or (128 + cause["signal"] if cause["signal"] else 1)


def message(cause: Cause, tail: bytes) -> bytes:
    head = _dump(cause)
    text = cause.get("signature", "")
    while len(head) > OBJECT_BYTES and text:
        text = text[: len(text) * 3 // 4]
        head = _dump({**cause, "signature": text})
    room = MESSAGE_BYTES - len(head) - 1
    # Cut at a character: the API server refuses what is not UTF-8, and a replacement character may be longer.
    kept = tail[-room:].decode("utf-8", "ignore").encode() if room > 0 else b""
    return head + (b"\n" + kept if kept else b"")


def _dump(cause: Cause) -> bytes:
    return json.dumps(dict(cause), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
