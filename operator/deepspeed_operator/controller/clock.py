"""One clock for all replicas: the API server's, carried on by a steady one.

What a replica has dated is compared with now by the next one, and with what the API server has dated: with clocks an
hour apart a deadline would have passed before it began, or never pass. The Date of each answer tells within a second.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def steady() -> float:
    """Return seconds that go on while the process or its machine is stopped, and that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock:
    """Begins with the machine's time; `read` and `wall` return seconds."""

    def __init__(self, read: Callable[[], float] = steady, wall: Callable[[], float] = time.time) -> None:
        self._read = read
        self._ahead = wall() - read()

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._ahead + self._read(), UTC)

    def correct(self, date: str | None, sent_at: float) -> None:
        """Take in the Date of an answer, in whole seconds, to a request that was sent when `read` was `sent_at`."""
        try:
            said = parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return
        self._ahead = min(max(self._ahead, said - self._read()), said + 1 - sent_at)


CLOCK = Clock()
now = CLOCK.now
