"""What each rank of this pod does, as dso_progresshook.py tells it from within: steps, their times, and phases.

A detector of hangs reads it: `ranks()` says of every rank since when it has been in its phase, and when its last step
ended, by time.monotonic() of this machine. Reading asks nothing of a rank.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import struct
from typing import Any, Iterator

from dso_progresshook import (
    BYTES,
    HEAD,
    HEAD_BYTES,
    LOAD_PLACE,
    LOADS,
    PASSES,
    PASSES_PLACE,
    PHASES,
    PLACE,
    SAVE,
    SAVE_PLACE,
    SPENT,
    SPENT_PLACE,
    WINDOW,
)

_HEAD, _SPENT, _PASSES, _SAVE = map(struct.Struct, (HEAD, SPENT, PASSES, SAVE))


class RankProgress:
    """One rank at one moment. `at`: when its last step ended, None before the first; `since`: when its phase began.

    `step` is DeepSpeed's count, which goes on after a resume, and `taken` the steps that this process has made.
    `seconds` are those of its last steps, at most 64, without the first and without those beside which it evaluated
    or saved. `rate` is the learning rate, None where it is not known; `samples` those of a step over all ranks.
    `first`: when its first step ended; `saving`: the seconds of all its saves, the last of which ended at `saved`.
    `save`: the directory that the newest save goes to, and when that began by time.time(); None before the first.
    `load`: what has become of a checkpoint to load, "loads", "found" or "none"; empty before.
    `passes` forward passes took `pass_seconds`, as far as they were timed.
    """

    __slots__ = (
        *("at", "first", "load", "pass_seconds", "passes", "phase", "rank", "rate", "samples", "save", "saved"),
        *("saving", "seconds", "since", "step", "taken"),
    )

    def __init__(self, rank: int, record: bytes) -> None:
        self.rank = rank
        self.taken, timed, self.step, phase, self.samples, at, self.since, rate = _HEAD.unpack_from(record)
        self.first, self.saving, self.saved = _SPENT.unpack_from(record, SPENT_PLACE)
        self.phase: str = PHASES[int(phase)]
        self.at: float | None = at if self.taken else None
        self.rate: float | None = rate if math.isfinite(rate) else None
        self.passes, self.pass_seconds = _PASSES.unpack_from(record, PASSES_PLACE)
        begun, length, path = _SAVE.unpack_from(record, SAVE_PLACE)
        path = path.partition(b"\0")[0]
        whole = bool(path) and len(path) == length  # and not in the making
        self.save: tuple[str, float] | None = (os.fsdecode(path), begun) if whole else None
        self.load: str = LOADS[record[LOAD_PLACE]]
        self.seconds = struct.unpack_from(f"{min(timed, WINDOW)}d", record, HEAD_BYTES)

    def state(self, now: float) -> dict[str, Any]:
        """docs/agent-protocol.md lists it."""
        ago = None if self.at is None else round(now - self.at, 1)
        told = {"rank": self.rank, "step": self.step, "secondsSinceStep": ago}
        return {**told, "phase": self.phase, "secondsInPhase": round(now - self.since, 1)}


class RankRecords:
    """The directory in shared memory in which the ranks of one round keep their records."""

    def __init__(self, hook: str | None) -> None:
        """`hook` is the directory of the hook, None without one; theirs has its name."""
        self.directory = os.path.join(PLACE, os.path.basename(hook)) if hook else ""
        with contextlib.suppress(OSError):  # no shared memory, and no records; or the hook's is there, too
            if hook:
                os.mkdir(self.directory, 0o700)

    def ranks(self) -> list[RankProgress]:
        """Every rank of this pod whose engine DeepSpeed has made, in order."""
        return sorted(self._read(), key=lambda each: each.rank)

    def _read(self) -> Iterator[RankProgress]:
        try:
            names = os.listdir(self.directory) if self.directory else []
        except OSError:
            return  # there is none
        for name in filter(str.isdigit, names):
            path = os.path.join(self.directory, name)
            # It may be in the making.
            with contextlib.suppress(OSError, LookupError, struct.error), open(path, "rb") as file:
                yield RankProgress(int(name), file.read(BYTES))

    def end(self) -> None:
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = ""
