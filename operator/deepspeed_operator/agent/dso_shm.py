"""What a round leaves in /dev/shm: segments of ranks that were killed hold memory until somebody removes them.

Programs that share memory name it by files, there and not below. A directory is a user's, who may keep it on purpose.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Iterator

PLACE = "/dev/shm"
# What torch, NCCL, Python and MPI name so: outside a container a user may keep files of any other name there.
_OF_RANKS = re.compile(r"torch_|nccl-|rccl-|psm_|sem\.|mp-|pym-|cuda\.shm\.|ucx|vader_")
OURS = "deepspeed-operator-"  # other agents of this machine keep files there that nobody has open


class SharedMemory:
    """The files of /dev/shm at a round's start, so that those which came since can be told from them."""

    def __init__(self) -> None:
        self.before = dict(entries())

    def clear(self) -> None:
        """Remove what came since, is this user's, and no living process has: others may share the place."""
        came = [name for name, inode in entries() if self.before.get(name) != inode and is_own(name)]
        left = [name for name in came if os.getpid() == 1 or _OF_RANKS.match(name)]
        used = names_in_use() if left else ()
        for name in left:
            if name not in used:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(PLACE, name))


def entries() -> Iterator[tuple[str, int]]:
    """The names of files in /dev/shm, with their inodes."""
    try:
        with os.scandir(PLACE) as found:
            for entry in found:
                if not entry.name.startswith(OURS) and not entry.is_dir(follow_symlinks=False):
                    yield entry.name, entry.inode()
    except OSError:
        return  # the container has none


def is_own(name: str) -> bool:
    try:
        return os.lstat(os.path.join(PLACE, name)).st_uid == os.geteuid()
    except OSError:
        return False  # gone meanwhile


def names_in_use() -> set[str]:
    """What living processes map or have open in /dev/shm. Asks no file system, as one may hang."""
    names: set[str] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for path in (*mapped(pid), *opened(pid)):
            if path.startswith(PLACE + "/"):
                names.add(path[len(PLACE) + 1 :])
    return names


def mapped(pid: str) -> Iterator[str]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
        for line in file:
            if PLACE.encode() in line:
                yield os.fsdecode(line.rstrip(b"\n").split(maxsplit=5)[-1])


def opened(pid: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{number}")
