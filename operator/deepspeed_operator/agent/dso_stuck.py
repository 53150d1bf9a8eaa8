"""Processes that SIGKILL does not end: they sleep in the kernel, for a disk, a file server or a GPU's driver."""

from __future__ import annotations

from typing import Collection, Iterator

MOST = 3


def stuck(processes: Collection[int]) -> str:
    """What still lives of these processes, and where in the kernel it waits."""
    members = list(_living(processes))
    listed = "; ".join(f"process {pid} ({name}) is {state}{_place(pid)}" for pid, name, state in members[:MOST])
    more = f"; and {len(members) - MOST} more" if len(members) > MOST else ""
    return f"{listed}{more}: it holds its GPUs until the kernel lets it go or the node restarts"


def _living(processes: Collection[int]) -> Iterator[tuple[int, str, str]]:
    for pid in sorted(processes):
        before, _, after = _read(f"/proc/{pid}/stat").rpartition(")")
        fields = after.split()
        if not fields or fields[0] == "Z":
            continue
        state = "in uninterruptible sleep (state D)" if fields[0] == "D" else f"in state {fields[0]}"
        yield pid, before.partition("(")[2], state


def _place(pid: int) -> str:
    """The topmost function of its kernel stack, which only root may read; else where it waits, as ps shows it."""
    top = _read(f"/proc/{pid}/stack").partition("\n")[0].partition("] ")[2].partition("+")[0]
    place = top or _read(f"/proc/{pid}/wchan")
    return f", in {place} of the kernel" if place.strip("0") else ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # it has ended meanwhile, or may not be read
