"""A token bucket: so many writes a second, with room for a burst after a quiet time."""

import asyncio
from collections.abc import Awaitable, Callable


class RateLimiter:
    """Callers pass in the order in which they came."""

    def __init__(
        self,
        rate: float,
        burst: float,
        *,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._interval = 1.0 / rate
        self._window = burst / rate
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._sleep = sleep
        self._next: float | None = None

    async def acquire(self) -> None:
        """Wait until one more write is allowed."""
        now = self._clock()
        # Times are handed out on a line: a caller's turn is one interval after the previous caller's, and the line
        # begins at most a window in the past.
        turn = now - self._window if self._next is None else max(self._next, now - self._window)
        self._next = turn + self._interval
        if self._next > now:
            await self._sleep(self._next - now)
