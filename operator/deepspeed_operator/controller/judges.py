"""Calls of pure functions on users' words, each under a budget, outside the event loop.

All calls begin in the quick lane; one that exceeds its budget there goes to the patient one. So a job that costs much
waits for others of its kind, and no other job for it. In each lane the namespaces take turns.

Budgets are of CPU time: a busy machine makes no job exceed one.
"""

import asyncio
import pickle
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from deepspeed_operator.controller.fairness import Permits
from deepspeed_operator.controller.forks import ANSWER, CALL, ERROR, LAST, MEMORY, TOO_LARGE, ForkServer

QUICK_SECONDS = 0.5
PATIENT_SECONDS = 10.0
# A worker of whom nobody hears for so long is no more, whatever became of it.
SILENCE_SECONDS = 120.0
IDLE_SECONDS = 60.0

_FIRST = {last: kind for kind, last in LAST.items()}

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class ExceededError(Exception):
    """A call needs more than one may have; in words for the job's author."""


class TimedOutError(ExceededError):
    """It needs more CPU time."""


class FailedError(Exception):
    """The function raised an exception of this name; the log tells where."""


class Judges:
    """The lanes."""

    def __init__(self, server: ForkServer) -> None:
        self._server = server
        self._lanes = (_Lane(server, QUICK_SECONDS), _Lane(server, PATIENT_SECONDS))

    async def call(
        self,
        namespace: str,
        function: Callable[Arguments, Result],
        *arguments: Arguments.args,
        **_: Arguments.kwargs,
    ) -> Result:
        """Return what the function returns of the arguments; ExceededError if that needs too much.

        The function is a module's, and arguments and result can be pickled.
        """
        request = pickle.dumps((function, arguments))
        quick, patient = self._lanes
        try:
            return await quick.call(namespace, request)
        except TimedOutError:
            return await patient.call(namespace, request)

    async def run(self) -> None:
        """Return when nothing can be judged any more, which only a restart mends."""
        await asyncio.get_running_loop().sock_recv(self._server.socket, 1)

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()


class _Lane:
    """One worker, started when there is something to do, and ended when there is nothing more."""

    def __init__(self, server: ForkServer, seconds: float) -> None:
        self._server = server
        self._seconds = seconds
        self._turn = Permits(1)
        self._worker: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def call(self, namespace: str, request: bytes) -> Any:
        async with self._turn.one(namespace):
            kind, answer = await self._ask(request)
        if kind == TOO_LARGE:
            raise ExceededError(f"judging it takes more than {MEMORY >> 20} MiB of memory")
        if kind == ERROR:
            raise FailedError(answer.decode())
        return pickle.loads(answer)  # noqa: S301 -- of our own process

    def close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        if self._worker is not None:
            self._worker[1].close()
            self._worker = None

    async def _ask(self, request: bytes) -> tuple[bytes, bytes]:
        if self._idle is not None:
            self._idle.cancel()
        if self._worker is None:
            self._worker = await asyncio.open_unix_connection(sock=self._server.worker())
        reader, writer = self._worker
        begun, keep = time.monotonic(), False
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                writer.write(CALL.pack(self._seconds, len(request)) + request)
                kind, length = ANSWER.unpack(await reader.readexactly(ANSWER.size))
                answer = await reader.readexactly(length)
            keep = kind not in _FIRST
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            if time.monotonic() - begun < self._seconds:
                raise ExceededError("judging it ends the process that does it") from None
            raise TimedOutError(f"judging it takes more than {self._seconds:g} s of CPU time") from None
        finally:
            if keep:
                self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.close)
            else:
                self.close()
        return _FIRST.get(kind, cast("bytes", kind)), answer
