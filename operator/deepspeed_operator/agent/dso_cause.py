"""Why a rank ended, in words, and the termination message that carries it to the operator."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Any

from dso_output import KEPT
from dso_plan import TERMINATION_LOG, Cause
from dso_words import dying_words, last_words, legible

MESSAGE_BYTES = 4000
OBJECT_BYTES = 1000
LINE_BYTES = 200

# Of Python, and of torch when it opens a file to write.
_PATH = re.compile(
    r"(?:(?:Permission denied|Read-only file system): '|Parent directory |File )(.+?)"
    r"(?:'| does not exist| cannot be opened)"
)


def signature(code: int, tail: bytes, error_file: str | None, out_of_memory: bool) -> str:
    """One line for status: why the rank ended, as far as it said so. `code` as subprocess gives it."""
    recorded = _recorded(error_file)
    if recorded:
        return recorded
    output = legible(tail)
    if code >= 0:
        return last_words(code, output)
    if out_of_memory:
        return "the container ran out of memory"
    return dying_words(output) or ("out of memory?" if code == -signal.SIGKILL else "")


def unwritable(text: str) -> str:
    """What keeps this user from writing to the path that an error names; empty if it names none, or nothing does."""
    found = _PATH.search(text)
    if not found:
        return ""
    place: str = os.path.abspath(found[1])
    while not os.path.isdir(place) and place != "/":
        place = os.path.dirname(place)
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return f"{place} is on a read-only file system"
    return "" if os.access(place, os.W_OK | os.X_OK) else f"{place} is not writable by uid {os.getuid()}"


def ending(cause: Cause) -> str:
    """How a rank, or the program that starts ranks, ended, for the log."""
    who = "the program" if cause["rank"] is None else f"rank {cause['rank']}"
    killed = cause["signal"] is not None
    how = f"was killed by signal {cause['signal']}" if killed else f"exited with code {cause['exitCode']}"
    return f"{who} {how}: {cause['signature']}" if cause["signature"] else f"{who} {how}"


def launcher_code(code: int, tail: bytes) -> int:
    """DeepSpeed's launcher exits with 247 when a rank was killed by signal 9; its log says which it was."""
    killed = re.findall(rb"exits with return code = -(\d+)$", tail, re.MULTILINE)
    return -int(killed[-1]) if killed and code == 256 - int(killed[-1]) else code


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
    log = legible(tail).encode()
    kept = log[-room:] if room > 0 else b""
    first, newline, rest = kept.partition(b"\n")
    if newline and len(first) < LINE_BYTES and (len(log) > room or len(tail) == KEPT):
        kept = rest  # it began within a line
    # Cut at a character: the API server refuses what is not UTF-8, and a replacement character may be longer.
    kept = kept.decode("utf-8", "ignore").encode()
    return head + (b"\n" + kept if kept else b"")


def write_message(data: bytes) -> None:
    try:
        with open(TERMINATION_LOG, "wb") as file:
            file.write(data)
    except OSError as error:
        print(f"[deepspeed-operator] no termination message: {error}", flush=True)


def _dump(cause: Cause) -> bytes:
    return json.dumps(dict(cause), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
