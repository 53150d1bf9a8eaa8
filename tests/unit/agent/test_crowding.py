"""Whoever reaches an agent's port may use up neither its file descriptors nor its patience with its members."""

import selectors
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import cycle, islice, product
from pathlib import Path

import pytest

from tests.unit.agent.harness import Gang

Make = Callable[..., Gang]

FENCE = 10
FILES = 400
FEW_FILES = ("sh", "-c", f'ulimit -n {FILES} && exec "$@"', "sh")
SLOW = {
    "silent": b"",
    "half a head": b"POST /heartbeat HTTP/1.1\r\nContent-",
    "half a body": b"POST /heartbeat HTTP/1.1\r\nAuthorization: Bearer guessed\r\nContent-Length: 60000\r\n\r\n[",
}


class Crowd:
    """Connections from some addresses, made again whenever they are closed."""

    def __init__(self, address: tuple[str, int], sources: int) -> None:
        self.address = address
        self.sources = [f"127.99.{index}.1" for index in range(sources)]
        self.selector = selectors.DefaultSelector()

    def press(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        every = cycle(product(self.sources, SLOW.values()))
        while time.monotonic() < until:
            for source, words in islice(every, 2 * FILES - len(self.selector.get_map())):
                self.join(source, words)
            for key, _ in self.selector.select(0.05):
                self.leave(key.fileobj)

    def join(self, source: str, words: bytes) -> None:
        connection = socket.socket()
        connection.bind((source, 0))
        connection.settimeout(0.2)
        try:
            connection.connect(self.address)
            connection.sendall(words)
        except OSError:
            connection.close()
        else:
            self.selector.register(connection, selectors.EVENT_READ)

    def leave(self, connection: object) -> None:
        assert isinstance(connection, socket.socket)
        self.selector.unregister(connection)
        connection.close()


@contextmanager
def crowd(address: tuple[str, int], sources: int) -> Generator[Crowd]:
    made = Crowd(address, sources)
    try:
        yield made
    finally:
        for key in list(made.selector.get_map().values()):
            made.leave(key.fileobj)
        made.selector.close()


@pytest.mark.parametrize("sources", [1, 40])
def test_members_are_served_whoever_else_presses(gang: Make, tmp_path: Path, sources: int) -> None:
    over = tmp_path / "over"
    script = f"import os, time\nwhile not os.path.exists({str(over)!r}): time.sleep(0.05)"
    made = gang(nodes=2, script=script, launch={"fenceSeconds": FENCE})
    running = [made.start(0, wrapper=FEW_FILES), made.start(1)]
    for each in running:
        each.wait_until_ready()
    with crowd((made.hosts[0], made.port), sources) as pressing:
        pressing.press(FENCE + 3)
        assert running[0].ask("/readyz") == 200
        assert running[0].get("/state")[1]["hosts"]["registered"] == 2
        over.touch()
        assert [each.end().code for each in running] == [0, 0]
