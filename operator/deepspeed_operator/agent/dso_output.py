"""The ranks' output: whole lines to our own stdout, in bounded pieces, and the last bytes of each rank kept."""

from __future__ import annotations

import os
import selectors
import threading
import time
from typing import Callable, Sequence

PIECE = 65536
KEPT = 8192
Tap = Callable[[bytes], None]


class Stream:
    """One rank's pipe; `prefix` stands before each of its lines."""

    __slots__ = ("at", "fd", "inside", "partial", "prefix", "tail")

    def __init__(self, fd: int, prefix: bytes) -> None:
        self.fd = fd
        self.prefix = prefix
        self.partial = b""
        self.tail = b""
        self.at: float | None = None  # when it last wrote; None: never
        self.inside = False  # a line longer than PIECE has been begun

    def take(self, chunk: bytes, last: bool = False) -> bytes:
        """What can be printed now: all up to the last newline; the rest once it is long, or the stream is over."""
        self.tail = (self.tail + chunk)[-KEPT:]
        if chunk:
            self.at = time.monotonic()
        data = self.partial + chunk
        if last and (data or self.inside):
            data += b"" if data.endswith(b"\n") else b"\n"
        cut = len(data) if len(data) >= PIECE else data.rfind(b"\n") + 1
        text, self.partial = data[:cut], data[cut:]
        if not text:
            return text
        begin = b"" if self.inside else self.prefix
        self.inside = not text.endswith(b"\n")
        return begin + text[:-1].replace(b"\n", b"\n" + self.prefix) + text[-1:]


class Printer:
    """The agent's stdout, which the ranks of all rounds and the agent itself share. Who writes holds the lock.

    It is held through a write, and whoever reads the log may hang: the agent's own lines wait for a second at most.
    """

    def __init__(self, target: int = 1) -> None:
        self.target = target
        self.lock = threading.Lock()
        self.unfinished: Stream | None = None  # whose line is the last one printed, not yet ended

    def say(self, text: str) -> None:
        """A line of the agent's own."""
        if self.lock.acquire(timeout=1):
            try:
                # Names of files and variables need not be text.
                lines = "".join(f"[deepspeed-operator] {line}\n" for line in text.split("\n"))
                self.write(lines.encode("utf-8", "replace"), None)
            finally:
                self.lock.release()

    def write(self, data: bytes, source: Stream | None) -> None:
        if not data:
            return
        if self.unfinished and self.unfinished is not source:
            data = b"\n" + data
            self.unfinished.inside = False
        self.unfinished = None if data.endswith(b"\n") else source
        try:
            while data:
                data = data[os.write(self.target, data) :]
        except OSError:
            pass  # nobody reads our stdout: the ranks must still be able to write theirs


class Output(threading.Thread):
    """Follows the pipes of some processes until all are closed. Each tap gets their lines as they pass."""

    def __init__(self, printer: Printer, taps: Sequence[Tap]) -> None:
        super().__init__(name="output", daemon=True)
        self.printer, self.taps = printer, taps
        self.selector = selectors.DefaultSelector()
        self.streams: list[Stream] = []

    def add(self, fd: int, prefix: str) -> Stream:
        os.set_blocking(fd, False)
        stream = Stream(fd, prefix.encode())
        with self.printer.lock:
            self.streams.append(stream)
            self.selector.register(fd, selectors.EVENT_READ, stream)
        return stream

    def run(self) -> None:
        while self.streams:
            for key, _ in self.selector.select(0.5):
                with self.printer.lock:
                    self._read(key.data)
        self.selector.close()

    def drain(self, stream: Stream, finish: bool = False) -> None:
        """Read what the pipe holds now, without waiting for its end: a grandchild may keep it open for ever."""
        if self.printer.lock.acquire(timeout=1):
            try:
                for _ in range(64):
                    if not self._read(stream):
                        break
                if finish and stream in self.streams:
                    self._end(stream)
            finally:
                self.printer.lock.release()

    def _read(self, stream: Stream) -> bool:
        if stream not in self.streams:
            return False
        try:
            chunk = os.read(stream.fd, PIECE)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if not chunk:
            self._end(stream)
            return False
        text = stream.take(chunk)
        for tap in self.taps:
            tap(text)
        self.printer.write(text, stream)
        return True

    def _end(self, stream: Stream) -> None:
        self.printer.write(stream.take(b"", last=True), stream)
        self.selector.unregister(stream.fd)
        self.streams.remove(stream)
        os.close(stream.fd)
