"""The process: starts everything, stops it in the right order, and ends rather than go on half."""

import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Coroutine, Iterable
from typing import Any

import uvloop

from deepspeed_operator.controller import health, logs
from deepspeed_operator.controller.connection import connect
from deepspeed_operator.controller.forks import ForkServer
from deepspeed_operator.controller.judges import Judges
from deepspeed_operator.controller.replica import Replica
from deepspeed_operator.controller.settings import Settings, process_settings
from deepspeed_operator.controller.verdicts import prepare

# Together well below the 5 s within which a stopped replica has handed over.
RELEASE_SECONDS = 2.0
ENGINE_SECONDS = 0.5
# What passes through is JSON, which has no cycles: looking for some at every 700 objects was a twelfth of the CPU time.
OBJECTS_UNTIL_COLLECTION = 20_000
# The API server takes objects 10,000 deep, and one that cannot be parsed would end the watch for all.
DEEPEST = 12_000

_log = logging.getLogger(__name__)


def main() -> None:
    """Run the operator until SIGTERM; exit with 1 if it could not go on."""
    settings = process_settings(sys.argv[1:])
    logs.configure(settings.log_format, settings.log_level)
    sys.setrecursionlimit(DEEPEST)
    gc.freeze()  # modules stay
    gc.set_threshold(OBJECTS_UNTIL_COLLECTION)
    server = ForkServer(prepare)  # before there is a thread
    sys.exit(uvloop.run(run(settings, server)))


async def run(settings: Settings, server: ForkServer) -> int:
    """Serve until told to stop; return the exit code."""
    stopping = asyncio.Event()
    _catch_signals(stopping)
    replica = Replica(settings, await connect(), Judges(server))
    async with contextlib.AsyncExitStack() as stack:  # unwound from the last entry to the first
        stack.push_async_callback(replica.close)
        runner = await health.serve(replica.health, settings.http_host, settings.http_port)
        stack.push_async_callback(runner.cleanup)
        stop = _task("stop signal", stopping.wait())
        prepared = _task("prerequisites", replica.prepare())
        stack.push_async_callback(_cancel, [stop, prepared])
        await asyncio.wait([stop, prepared], return_when=asyncio.FIRST_COMPLETED)
        if not stop.done():
            prepared.result()  # raises what a broken answer of the API server led to
            await _serve(replica, stack, stopping, stop)
    return 0 if stopping.is_set() else 1


async def _serve(
    replica: Replica, stack: contextlib.AsyncExitStack, stopping: asyncio.Event, stop: asyncio.Task[Any]
) -> None:
    """Run all parts until the first one ends, or the process is to stop."""
    # What writes ends first, then the Lease is given away; what only reads ends last.
    reading = [_task(name, part) for name, part in replica.watchers()]
    stack.push_async_callback(_cancel, reading)
    engine_ready, engine_stop = asyncio.Event(), asyncio.Event()
    writing = [_task(name, part) for name, part in replica.writers()]
    # Last: when kopf ends, it ends every task that has begun after it.
    engine = _task("kopf", replica.engine(engine_ready, engine_stop))
    stack.push_async_callback(_stop_engine, engine, engine_stop)
    stack.push_async_callback(_release, replica)
    stack.push_async_callback(_cancel, writing)
    ready = _task("kopf is ready", engine_ready.wait())
    parts = [stop, engine, *reading, *writing]
    await asyncio.wait([ready, *parts], return_when=asyncio.FIRST_COMPLETED)
    _catch_signals(stopping)  # kopf has put its own handlers in the place of ours
    await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    await _cancel([ready])
    for part in parts:
        if part.done() and part is not stop:
            # kopf cancels what runs beside it when it ends.
            error = None if part.cancelled() else part.exception()
            _log.error("%s ended: %s", part.get_name(), error or "by itself")
            # A signal that reached kopf's handler before ours was put back is no failure.
            if part is engine and error is None:
                stopping.set()


def _task(name: str, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(coroutine, name=name)


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    listed = list(tasks)
    for task in listed:
        task.cancel()
    await asyncio.gather(*listed, return_exceptions=True)


async def _release(replica: Replica) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RELEASE_SECONDS):
            await replica.release()


async def _stop_engine(engine: asyncio.Task[Any], flag: asyncio.Event) -> None:
    flag.set()
    await asyncio.wait([engine], timeout=ENGINE_SECONDS)
    await _cancel([engine])


def _catch_signals(stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
