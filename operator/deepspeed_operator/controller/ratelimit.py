"""A token bucket: so many writes a second, with room for a burst after a quiet time. Namespaces take turns."""

import asyncio
from collections.abc import Awaitable, Callable

from deepspeed_operator.controller.fairness import Turns


class RateLimiter:
    """Callers of a namespace pass in the order in which they came."""

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
        self._last: float | None = None  # when the last caller might pass
        self._waiting: Turns[asyncio.Future[None]] = Turns()
        self._admitting: asyncio.Task[None] | None = None

    async def acquire(self, namespace: str = "") -> None:
        """Wait until one more write is allowed, and it is the namespace's turn."""
        if not self._waiting and self._delay() <= 0:
            self._pass()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(namespace, turn)
        if self._admitting is None or self._admitting.done():
            self._admitting = asyncio.create_task(self._admit(), name="rate limiter")
        try:
            await turn
        finally:
            self._waiting.discard(namespace, turn)

    async def _admit(self) -> None:
        while self._waiting:
            if (delay := self._delay()) > 0:
                await self._sleep(delay)
            elif (admitted := self._waiting.next()) is not None and not admitted[1].done():
                self._pass()
                admitted[1].set_result(None)

    def _delay(self) -> float:
        return self._turn() - self._clock()

    def _pass(self) -> None:
        self._last = self._turn()

    def _turn(self) -> float:
        # Times are handed out on a line: a caller's turn is one interval after the previous caller's, and the line
        # begins at most a window in the past.
        begin = self._clock() - self._window
        return (begin if self._last is None else max(self._last, begin)) + self._interval
