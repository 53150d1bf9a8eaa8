"""A de-duplicating, level-triggered work queue: a key waits at most once and is worked on by one worker at a time.

Namespaces take turns, and share the workers: one that has a thousand jobs does not delay another's first.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from deepspeed_operator.controller.fairness import Shares, Turns
from deepspeed_operator.controller.metrics import QUEUE_DEPTH, QUEUE_SECONDS, RECONCILE_ERRORS

Key = tuple[str, str]  # namespace, name

FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 60.0

_log = logging.getLogger(__name__)


class WorkQueue:
    """Keys of a namespace come out as they went in; one added while it is worked on comes out once more."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: Turns[Key] = Turns()
        self._shares = Shares(1)
        self._since: dict[Key, float] = {}  # of those that wait; the oldest first
        self._working: set[Key] = set()
        self._again: set[Key] = set()
        self._alarms: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._arrival = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def oldest_seconds(self) -> float:
        """Return how long the key has waited that waits longest; 0 if none does."""
        first = next(iter(self._since.values()), None)
        return 0.0 if first is None else self._loop.time() - first

    def add(self, key: Key) -> None:
        """Have the key worked on soon."""
        if key in self._working:
            self._again.add(key)
        else:
            self._waiting.add(key[0], key)
            self._since.setdefault(key, self._loop.time())
            QUEUE_DEPTH.set(len(self._waiting))
            self._arrival.set()

    def add_after(self, key: Key, delay: float) -> None:
        """Have the key worked on after a delay; the earliest of several alarms counts."""
        due = self._loop.time() + max(0.0, delay)
        alarm = self._alarms.get(key)
        if alarm is not None and alarm.when() <= due:
            return
        self._cancel_alarm(key)
        self._alarms[key] = self._loop.call_at(due, self._ring, key)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a key that is gone."""
        self._cancel_alarm(key)
        self._failures.pop(key, None)

    async def run(self, work: Callable[[Key], Awaitable[None]], workers: int) -> None:
        """Work on keys until cancelled; an exception delays its key, longer each time."""
        self._shares = Shares(workers)
        async with asyncio.TaskGroup() as group:
            for number in range(workers):
                group.create_task(self._worker(work), name=f"queue worker {number}")

    async def _worker(self, work: Callable[[Key], Awaitable[None]]) -> None:
        while True:
            key = await self._next()
            try:
                await work(key)
            except Exception:
                RECONCILE_ERRORS.inc()
                delay = self._backoff(key)
                _log.exception("Reconcile of %s/%s failed; next try in %.1f s", *key, delay)
                self._cancel_alarm(key)  # it was set for what has not come about
                self.add_after(key, delay)
            else:
                self._failures.pop(key, None)
            finally:
                self._working.remove(key)
                self._shares.give(key[0])
                if self._waiting:
                    self._arrival.set()  # of a namespace that had its share
                # The echo of a failing job's own writes must not shorten its backoff.
                if key in self._again and key not in self._failures:
                    self.add(key)
                self._again.discard(key)

    async def _next(self) -> Key:
        while (found := self._waiting.next(self._shares.may_take)) is None:
            self._arrival.clear()
            await self._arrival.wait()
        namespace, key = found
        self._shares.take(namespace)
        self._cancel_alarm(key)  # what it was set for is looked at now
        self._working.add(key)
        QUEUE_SECONDS.observe(self._loop.time() - self._since.pop(key))
        QUEUE_DEPTH.set(len(self._waiting))
        return key

    def _ring(self, key: Key) -> None:
        del self._alarms[key]
        self.add(key)

    def _cancel_alarm(self, key: Key) -> None:
        if alarm := self._alarms.pop(key, None):
            alarm.cancel()

    def _backoff(self, key: Key) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        # Bounded exponent: a job may fail for weeks.
        delay = min(FIRST_BACKOFF * 2 ** min(failures - 1, 16), LONGEST_BACKOFF)
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 -- jitter
