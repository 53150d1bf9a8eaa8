"""A small HTTP: one thread serves any number of connections, and a request may wait for its answer."""

from __future__ import annotations

import collections
import contextlib
import errno
import json
import selectors
import socket
import threading
import time
from typing import Any, Optional, Protocol, Tuple

LIMIT = 65536
IDLE_SECONDS = 10.0
Answer = Optional[Tuple[int, Any]]


class App(Protocol):
    hold: float

    def answer(self, path: str, body: dict[str, Any]) -> Answer:
        """The status and JSON object to send, or None: hold the request."""
        ...

    def held(self, body: dict[str, Any], late: bool) -> Answer:
        """The same for a held request, asked when something changed or, late, when it has waited long enough."""
        ...

    def sent(self, body: dict[str, Any], answer: Any) -> None:
        """The answer to this request is on its way, whatever becomes of this process."""
        ...

    def changed(self, now: float) -> bool: ...


class Connection:
    __slots__ = ("body", "data", "open", "since", "sock")

    def __init__(self, sock: socket.socket, now: float) -> None:
        self.sock = sock
        self.data = b""
        self.body: dict[str, Any] | None = None
        self.since = now
        self.open = True


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """On all interfaces, except for a host that is a loopback address: others of the gang may share the machine."""
    if not host.startswith("127."):
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        except (OSError, ValueError) as error:
            # Nodes without IPv6 are common; a port in use is an error in either family.
            if getattr(error, "errno", None) == errno.EADDRINUSE:
                raise
        host = ""
    return socket.create_server((host, port), backlog=backlog)


class Server(threading.Thread):
    def __init__(self, listener: socket.socket, app: App) -> None:
        super().__init__(name="http", daemon=True)
        self.app = app
        self.listener = listener
        listener.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ)
        # Both in order of time, so that the oldest is always at the left.
        self.young: collections.deque[Connection] = collections.deque()
        self.waiting: collections.deque[Connection] = collections.deque()

    def run(self) -> None:
        while True:
            ready = self.selector.select(0.25)
            now = time.monotonic()
            for key, _ in ready:
                if key.data is None:
                    self._accept(now)
                else:
                    self._read(key.data, now)
            self._expire(now)
            if self.app.changed(now):
                held, self.waiting = self.waiting, collections.deque()
                for connection in held:
                    self._reconsider(connection, late=False)

    def _accept(self, now: float) -> None:
        for _ in range(64):
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                return
            except OSError:
                time.sleep(0.05)  # out of file descriptors: spinning would only slow the ranks
                return
            sock.setblocking(False)
            connection = Connection(sock, now)
            self.young.append(connection)
            self.selector.register(sock, selectors.EVENT_READ, connection)

    def _read(self, connection: Connection, now: float) -> None:
        try:
            chunk = connection.sock.recv(LIMIT)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk or len(connection.data) > LIMIT:
            self._close(connection)
            return
        connection.data += chunk
        head, separator, rest = connection.data.partition(b"\r\n\r\n")
        if connection.body is not None or not separator:
            return
        try:
            path, length = parse_head(head)
            if len(rest) < length:
                return
            body: dict[str, Any] = json.loads(rest) if length else {}
            answer = self.app.answer(path, body)
        except Exception as error:  # whatever a stranger sends: without this thread the gang is lost
            self._send(connection, {}, (400, {"error": repr(error)}))
            return
        if answer is None:
            connection.body, connection.since = body, now
            self.waiting.append(connection)
        else:
            self._send(connection, body, answer)

    def _reconsider(self, connection: Connection, late: bool) -> None:
        if connection.open and connection.body is not None:
            answer = self.app.held(connection.body, late)
            if answer is None:
                self.waiting.append(connection)
            else:
                self._send(connection, connection.body, answer)

    def _expire(self, now: float) -> None:
        while self.waiting and now - self.waiting[0].since >= self.app.hold:
            self._reconsider(self.waiting.popleft(), late=True)
        while self.young and now - self.young[0].since >= IDLE_SECONDS:
            connection = self.young.popleft()
            if connection.body is None:
                self._close(connection)

    def _send(self, connection: Connection, body: dict[str, Any], answer: tuple[int, Any]) -> None:
        payload = json.dumps(answer[1]).encode()
        head = f"HTTP/1.1 {answer[0]} -\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n"
        # An answer is a few KB and always fits the empty send buffer of a fresh connection.
        # Where the caller went away, it will call again.
        with contextlib.suppress(OSError):
            connection.sock.send(head.encode() + b"Connection: close\r\n\r\n" + payload)
            self.app.sent(body, answer[1])
        self._close(connection)

    def _close(self, connection: Connection) -> None:
        if connection.open:
            connection.open = False
            self.selector.unregister(connection.sock)
            connection.sock.close()


def parse_head(head: bytes) -> tuple[str, int]:
    request, *headers = head.decode("latin-1").split("\r\n")
    path = request.split(" ")[1].split("?")[0]
    lengths = [line.partition(":")[2] for line in headers if line.lower().startswith("content-length:")]
    length = int(lengths[0]) if lengths else 0
    if length > LIMIT:
        raise ValueError("body too large")
    return path, length


def post(addresses: list[Any], path: str, body: dict[str, Any], timeout: float) -> tuple[int, Any]:
    """One call; `addresses` as getaddrinfo returns them. Raises OSError or ValueError."""
    payload = json.dumps(body).encode()
    with connect(addresses) as sock:
        sock.settimeout(timeout)
        head = f"POST {path} HTTP/1.1\r\nHost: agent\r\nContent-Length: {len(payload)}\r\n\r\n"
        sock.sendall(head.encode() + payload)
        data = b""
        while True:
            chunk = sock.recv(LIMIT)
            if not chunk:
                break
            data += chunk
    head, _, rest = data.decode().partition("\r\n\r\n")
    if not rest:
        raise ValueError("no answer")
    return int(head.split(" ")[1]), json.loads(rest)


def connect(addresses: list[Any]) -> socket.socket:
    error = OSError("no address")
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(3)
            sock.connect(address)
        except OSError as caught:
            sock.close()
            error = caught
        else:
            return sock
    raise error
