"""Which job is worked on at this moment, in a file that outlives the process: what ended it is not tried again at once.

The file is on a volume of the pod, which a restart of its container keeps. A process that ends while it works on no job
sets none aside.
"""

import contextlib
import json
import logging
import mmap
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from deepspeed_operator.reconcile.observe.observed import SetAside

FIRST_PAUSE = 10.0
LONGEST_PAUSE = 3600.0
# The Lease is renewed every 2 s: a job that holds the event loop longer ends the process sooner or later.
LONGEST_WORK = 2.0
FORGOTTEN_SECONDS = 86_400.0
_SIZE = 64  # more than a uid has

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Entry:
    times: int
    until: float
    why: str


class Marker:
    """What is remembered of jobs that ended a process, or came near to it; without a directory not beyond this one."""

    def __init__(self, directory: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._table = directory / "set-aside.json" if directory is not None else None
        self._page = bytearray(_SIZE) if directory is None else _mapped(directory / "at-work")
        self._load()
        unfinished = bytes(self._page).strip(b"\0 ").decode(errors="replace")
        if unfinished:
            self._page[:] = bytes(_SIZE)
            self._blame(unfinished, "the operator's process ended while it worked on this job")

    @contextlib.contextmanager
    def on(self, uid: str) -> Generator[None]:
        """Work on a job, without awaiting anything."""
        self._page[:] = uid.encode().ljust(_SIZE)[:_SIZE]
        begun = time.thread_time()
        try:
            yield
        finally:
            self._page[:] = bytes(_SIZE)
            taken = time.thread_time() - begun
        if taken > LONGEST_WORK:
            self._blame(uid, f"working on this job took {taken:.0f} s in which no other could be served")

    def aside(self, uid: str) -> SetAside | None:
        """Return why the job is to be left alone for now, if it is."""
        entry = self._entries.get(uid)
        if entry is None or self._clock() >= entry.until:
            return None
        return SetAside(entry.why, datetime.fromtimestamp(entry.until, UTC))

    def _blame(self, uid: str, why: str) -> None:
        before = self._entries.get(uid)
        times = before.times + 1 if before is not None else 1
        pause = min(FIRST_PAUSE * 2 ** min(times - 1, 16), LONGEST_PAUSE)
        self._entries[uid] = _Entry(times, self._clock() + pause, why)
        _log.warning("The job with uid %s is set aside for %.0f s: %s", uid, pause, why)
        self._save()

    def _load(self) -> None:
        if self._table is None:
            return
        forgotten = self._clock() - FORGOTTEN_SECONDS
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError, AttributeError):
            entries = {uid: _Entry(**entry) for uid, entry in json.loads(self._table.read_text()).items()}
            self._entries = {uid: entry for uid, entry in entries.items() if entry.until > forgotten}

    def _save(self) -> None:
        if self._table is None:
            return
        said = {uid: {"times": each.times, "until": each.until, "why": each.why} for uid, each in self._entries.items()}
        new = self._table.with_suffix(".new")
        new.write_text(json.dumps(said))
        new.replace(self._table)


def _mapped(path: Path) -> mmap.mmap:
    """A change is in the file at once, and costs no call."""
    with path.open("a+b") as file:
        file.truncate(_SIZE)
        return mmap.mmap(file.fileno(), _SIZE)
