"""Where every thread of the ranks of a pod is, asked of them while they run: `agent stacks` in the pod prints it.

The hook has each rank write its stacks when a signal comes, from within the signal's handler: also while a call into C
holds the interpreter's lock. A process that does not handle the signal, which would end it, gets none.
"""

from __future__ import annotations

import glob
import json
import os
import tempfile
import time
from typing import Any, Iterable, Iterator

from dso_descendants import descendants
from dso_launch import WORKSPACE
from dso_stuck import place, read, state

SIGNAL = 50  # a real-time signal that Linux has on every architecture; the hook has the same number
WITHIN_SECONDS = 2.0
QUIET_SECONDS = 0.05
MOST_BYTES = 32768
MOST_CHILDREN = 8
STOPPED = ("T", "t")  # by a signal or a debugger: it answers nothing


def main() -> int:
    for found in of_this_pod():
        print(json.dumps(found))
    return 0


def of_this_pod() -> Iterator[dict[str, Any]]:
    """Yields of each rank its number, its process, what the kernel says of it, and its stacks; "" where it has none."""
    places = {tempfile.gettempdir(), WORKSPACE, "/dev/shm"}
    for rank, pid, file in files(os.path.join(glob.escape(each), "deepspeed-operator-*") for each in places):
        if alive(pid):
            below = children(pid)[:MOST_CHILDREN]
            yield {**process(pid, file), "rank": rank, "children": [process(child, file) for child in below]}


def files(directories: Iterable[str]) -> list[tuple[int, int, str]]:
    """The rank, the process and the name of each file that a rank has for its stacks; directories may be patterns."""
    names = [name for each in directories for name in glob.glob(os.path.join(each, "stacks-*-*"))]
    return sorted((int(rank), int(pid), name) for name in names for _, rank, pid in [name.rsplit("-", 2)])


def alive(pid: int) -> bool:
    return state(pid) not in ("", "Z")


def children(pid: int) -> list[int]:
    """Of a rank, such as the workers of its data loader, those that can be asked."""
    return [child for child in descendants(root=pid) if handles(child)]


def process(pid: int, file: str) -> dict[str, Any]:
    """`file`: where it writes its stacks; empty where it does not."""
    words = read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    stacks = taken(pid, file) if file and state(pid) not in STOPPED else ""
    return {"pid": pid, "state": state(pid), "place": place(pid), "command": words[:200], "stacks": stacks}


def taken(pid: int, file: str) -> str:
    """What the process writes of its threads; its children write to the same file, one after another."""
    try:
        os.truncate(file, 0)  # written at its end, whatever that is
        if not handles(pid):
            return ""
        os.kill(pid, SIGNAL)
    except OSError:
        return ""
    end, size, quiet_since = time.monotonic() + WITHIN_SECONDS, 0, time.monotonic()
    while time.monotonic() < end:
        grown = os.path.getsize(file) if os.path.exists(file) else size
        if grown != size:
            size, quiet_since = grown, time.monotonic()
        elif size and time.monotonic() - quiet_since > QUIET_SECONDS:
            break
        time.sleep(0.01)
    try:
        with open(file, encoding="utf-8", errors="replace") as written:
            return written.read(MOST_BYTES)
    except OSError:
        return ""  # its round was over meanwhile


def handles(pid: int) -> bool:
    """Whether the signal has a handler there."""
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (SIGNAL - 1) & 1)
    return False
