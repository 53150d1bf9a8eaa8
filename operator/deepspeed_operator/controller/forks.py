"""Processes for what one job's words may make too expensive: they end by themselves when they have used too much.

A server is forked before the event loop and its threads begin. It forks the workers, so that all of them share this
process's modules. A worker answers one call after another, under limits that the kernel keeps: a call that exceeds its
CPU time ends the worker, whatever code it is in; one that exceeds its memory raises MemoryError.
"""

import gc
import logging
import os
import pickle
import resource
import signal
import socket
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

# Above what the process has when it is forked, for what a call needs and for what is kept of earlier ones.
MEMORY = 128 << 20
KEPT_MEMORY = 48 << 20
NICENESS = 5  # the event loop comes first

CALL = struct.Struct("!dQ")  # seconds of CPU time, length
ANSWER = struct.Struct("!cQ")  # kind, length
VALUE, ERROR, TOO_LARGE = b"V", b"E", b"M"
LAST: dict[bytes, bytes] = {VALUE: b"v", ERROR: b"e", TOO_LARGE: b"m"}  # the same from a worker that ends now

_log = logging.getLogger(__name__)


class ForkServer:
    """The process that forks workers; nothing comes from its socket but the end, when it has gone."""

    def __init__(self, prepare: Callable[[], object] = bool) -> None:
        """Fork it; nothing but the main thread may run yet. What `prepare` loads is there in each worker."""
        self.socket, theirs = socket.socketpair()
        if os.fork() == 0:
            self.socket.close()
            _exit_after(partial(_fork_workers, theirs, prepare))
        theirs.close()
        self.socket.setblocking(False)

    def worker(self) -> socket.socket:
        """Start a worker; return the connection to it. OSError if the server has gone."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.socket, [b"+"], [theirs.fileno()])
        return ours


def _exit_after(run: Callable[[], None]) -> None:
    """End the process without what its parent has prepared for its own end."""
    status = 1
    try:
        run()
        status = 0
    except BaseException:
        _log.exception("A process for judging ended")
    finally:
        os._exit(status)


def _fork_workers(requests: socket.socket, prepare: Callable[[], object]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; this process ends with the one that asks it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended workers leave nothing behind
    os.nice(NICENESS)
    prepare()
    gc.freeze()
    while True:
        asked, passed, _, _ = socket.recv_fds(requests, 1, 1)
        if not asked:
            return
        connection = socket.socket(fileno=passed[0])
        if os.fork() == 0:
            requests.close()
            _exit_after(partial(_answer_calls, connection))
        connection.close()


def _answer_calls(connection: socket.socket) -> None:
    limit = _memory() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        header = _receive(connection, CALL.size)
        if not header:
            return
        seconds, length = CALL.unpack(header)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        kind, answer = _answer(connection, length)
        signal.setitimer(signal.ITIMER_PROF, 0)
        last = kind == TOO_LARGE or _memory() > limit - MEMORY + KEPT_MEMORY
        try:
            connection.sendall(ANSWER.pack(LAST[kind] if last else kind, len(answer)) + answer)
        except BrokenPipeError:
            return  # nobody waits for it any more
        if last:
            return


def _answer(connection: socket.socket, length: int) -> tuple[bytes, bytes]:
    try:
        function, arguments = pickle.loads(_receive(connection, length))  # noqa: S301 -- of our own process
        return VALUE, pickle.dumps(function(*arguments))
    except MemoryError:
        return TOO_LARGE, b""
    except Exception as error:
        _log.exception("A call on a job's words failed")
        return ERROR, type(error).__name__.encode()


def _receive(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes; nothing at the end."""
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(min(size - len(received), 1 << 20))
        if not piece:
            return b""
        received += piece
    return bytes(received)


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
