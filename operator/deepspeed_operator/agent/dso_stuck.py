"""Processes that SIGKILL does not end: they sleep in the kernel, for a disk, a file server or a GPU's driver."""

from __future__ import annotations

from typing import Collection, Iterator

MOST = 3


def stuck(processes: Collection[int]) -> str:
    """What still lives of these processes, and where in the kernel it waits."""
    members = list(_living(processes))
    listed = "; ".join(f"process {pid} ({name}) is {words}{_in_the_kernel(pid)}" for pid, name, words in members[:MOST])
    more = f"; and {len(members) - MOST} more" if len(members) > MOST else ""
    return f"{listed}{more}: it holds its GPUs until the kernel lets it go or the node restarts"


def _living(processes: Collection[int]) -> Iterator[tuple[int, str, str]]:
    for pid in sorted(processes):
        letter = state(pid)
        if letter not in ("", "Z"):
            words = "in uninterruptible sleep (state D)" if letter == "D" else f"in state {letter}"
            yield pid, read(f"/proc/{pid}/stat").rpartition(")")[0].partition("(")[2], words


def state(pid: int) -> str:
    """The letter of its state, as ps shows it; "" where there is no such process."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[0] if fields else ""


def _in_the_kernel(pid: int) -> str:
    known = place(pid)
    return f", in {known} of the kernel" if known else ""


def place(pid: int) -> str:
    """The topmost function of its kernel stack, which only root may read; else where it waits, as ps shows it."""
    top = read(f"/proc/{pid}/stack").partition("\n")[0].partition("] ")[2].partition("+")[0]
    known = top or read(f"/proc/{pid}/wchan")
    return known if known.strip("0") else ""


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # it has ended meanwhile, or may not be read
