"""The processes of a round: all that live below this one, whatever sessions and parents they have chosen since.

An orphan's next parent is this process, the first of its container or else a subreaper. So everything that a rank has
started stays below it, and nothing of another pod's ever comes there. What enters the container from outside (kubectl
exec) does, where this is its first process, once its own parent is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Collection, Iterable, Iterator

# Of every process that the agent starts for a round, and what those start inherit it.
MARK = "DEEPSPEED_OPERATOR_ROUND"
_OF_THE_CONTAINER = "DEEPSPEED_OPERATOR_INDEX"  # every process of the container inherits it


def descendants(without: Collection[int] = (), root: int | None = None) -> list[int]:
    """All below this process, or `root`, and ended ones that nobody has waited for.

    `without`: these and what is below them.
    """
    children = _children_by_scan() if not os.path.exists("/proc/thread-self/children") else None
    found: dict[int, None] = {}
    above = [root or os.getpid()]
    while above:
        parent = above.pop()
        below = _children_of(parent) if children is None else children.get(parent, [])
        for pid in below:
            if pid not in without and pid not in found and not (parent == 1 and is_foreign(pid)):
                found[pid] = None
                above.append(pid)
    return list(found)


def is_foreign(pid: int) -> bool:
    """Whether this child came into the container from outside: it has the container's variables, and not a round's.

    Who changed them is taken for a rank's: ranks may, and their processes must not outlive a round.
    """
    names = {entry.partition(b"=")[0] for entry in _read(f"/proc/{pid}/environ").split(b"\0")}
    return _OF_THE_CONTAINER.encode() in names and MARK.encode() not in names


def _children_of(pid: int) -> Iterator[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return  # it has ended meanwhile
    for thread in threads:
        yield from map(int, _read(f"/proc/{pid}/task/{thread}/children").split())


def _children_by_scan() -> dict[int, list[int]]:
    """For a kernel that does not list them."""
    children: dict[int, list[int]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if fields:
            children.setdefault(int(fields[1]), []).append(int(pid))
    return children


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""  # it has ended meanwhile, or may not be read


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # another user's is told of as not ending
            os.kill(pid, signal.SIGKILL)
