"""Why a rank ended, in words."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from dso_launch import Cause
from dso_reason import Told, finding
from dso_words import dying_words, last_words, legible

# Of Python, and of torch when it opens a file to write.
_PATH = re.compile(
    r"(?:(?:Permission denied|Read-only file system): '|Parent directory |File )(.+?)"
    r"(?:'| does not exist| cannot be opened)"
)


def finding_of(code: int, tail: bytes, error_file: str | None, out_of_memory: bool) -> Told:
    """Why the rank ended, by its own words where it left any. `code` as subprocess gives it."""
    recorded, output = _recorded(error_file), legible(tail)
    words = recorded or (last_words(code, output) if code >= 0 else dying_words(output))
    found = finding(code, output, words, out_of_memory)
    return found._replace(reason="UserError") if recorded and found.reason == "RankFailed" and code > 0 else found


def unwritable(text: str) -> str:
    """What keeps this user from writing to the path that an error names; empty if it names none, or nothing does."""
    match = _PATH.search(text)
    if not match:
        return ""
    place: str = os.path.abspath(match[1])
    while not os.path.isdir(place) and place != "/":
        place = os.path.dirname(place)
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return f"{place} is on a read-only file system"
    return "" if os.access(place, os.W_OK | os.X_OK) else f"{place} is not writable by uid {os.getuid()}"


def ending(cause: Cause, where: str = "") -> str:
    """How a rank, or the program that starts ranks, ended, for the log; `where` follows its name."""
    who = ("the program" if cause["rank"] is None else f"rank {cause['rank']}") + where
    killed = cause["signal"] is not None
    how = f"was killed by signal {cause['signal']}" if killed else f"exited with code {cause['exitCode']}"
    perhaps = f" (perhaps {' or '.join(cause['candidates'])})" if cause.get("candidates") else ""
    return (f"{who} {how}: {cause['signature']}" if cause["signature"] else f"{who} {how}") + perhaps


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
