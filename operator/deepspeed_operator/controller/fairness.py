"""Turns and rests by namespace: what one asks for, however much it is, does not delay another's first request."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

# Of what the other namespaces leave, one may take three quarters: a newcomer finds some left.
_SHARE = 0.75
# What holds the event loop up for longer than this is followed by a rest: so many times as long.
_SLOW_SECONDS = 0.01
_REST = 3.0


class Turns(Generic[Item]):
    """Items of each namespace in their order; the namespaces take turns."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[Item, None]] = {}  # the namespace whose turn it is comes first

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __contains__(self, item: tuple[str, Item]) -> bool:
        return item[1] in self._lines.get(item[0], {})

    def count(self, namespace: str) -> int:
        """Return how many items of the namespace wait."""
        return len(self._lines.get(namespace, ()))

    def add(self, namespace: str, item: Item) -> None:
        """Put the item at the end of its namespace's line, unless it is in there."""
        self._lines.setdefault(namespace, {}).setdefault(item)

    def discard(self, namespace: str, item: Item) -> None:
        line = self._lines.get(namespace, {})
        line.pop(item, None)
        if not line:
            self._lines.pop(namespace, None)

    def next(self, may: Callable[[str], bool] = lambda _: True) -> tuple[str, Item] | None:
        """Take out the next item of a namespace that may have a turn; None if there is none."""
        for namespace, line in self._lines.items():
            if may(namespace):
                item = next(iter(line))
                del self._lines[namespace], line[item]
                if line:
                    self._lines[namespace] = line
                return namespace, item
        return None


class Shares:
    """How many of a number of places each namespace has taken."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._taken: Counter[str] = Counter()

    def may_take(self, namespace: str) -> bool:
        """Whether there is a place for this namespace: it leaves some to those who have none."""
        left = self._places - self._taken.total() + self._taken[namespace]
        return self._taken[namespace] < min(left, max(1, int(_SHARE * left)))

    def take(self, namespace: str) -> None:
        self._taken[namespace] += 1

    def give(self, namespace: str) -> None:
        self._taken[namespace] -= 1
        if not self._taken[namespace]:
            del self._taken[namespace]


class Permits:
    """A semaphore whose places are shared by the namespaces that want one."""

    def __init__(self, places: int) -> None:
        self._shares = Shares(places)
        self._waiting: Turns[asyncio.Future[None]] = Turns()

    @contextlib.asynccontextmanager
    async def one(self, namespace: str) -> AsyncGenerator[None]:
        """Hold a place, once it is the namespace's turn."""
        await self._take(namespace)
        try:
            yield
        finally:
            self._shares.give(namespace)
            self._admit()

    async def _take(self, namespace: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(namespace, turn)
        self._admit()
        if turn.done():
            return
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.discard(namespace, turn)
            if turn.done() and not turn.cancelled():  # admitted in the same moment
                self._shares.give(namespace)
                self._admit()
            raise

    def _admit(self) -> None:
        while (admitted := self._waiting.next(self._shares.may_take)) is not None:
            namespace, turn = admitted
            if not turn.done():  # whoever waited was cancelled, and has not run since
                self._shares.take(namespace)
                turn.set_result(None)


class Pace:
    """A namespace whose jobs hold the event loop up gets no more than a quarter of its time."""

    def __init__(self) -> None:
        self._rested_at: dict[str, float] = {}

    async def rested(self, namespace: str) -> None:
        """Wait while the namespace rests; what is to be timed follows at once."""
        while (pause := self._rested_at.get(namespace, 0.0) - time.monotonic()) > 0:  # noqa: ASYNC110 -- it may rest again
            await asyncio.sleep(pause)

    @contextlib.contextmanager
    def timed(self, namespace: str) -> Generator[None]:
        """Have the namespace rest if this takes long, awaiting nothing."""
        begun = time.thread_time()
        try:
            yield
        finally:
            taken = time.thread_time() - begun
            if taken > _SLOW_SECONDS:
                self._rested_at[namespace] = time.monotonic() + _REST * taken
            else:
                self._rested_at.pop(namespace, None)
