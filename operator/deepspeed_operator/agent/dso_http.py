"""A small HTTP: one thread serves any number of connections, and a request may wait for its answer."""

from __future__ import annotations

import collections
import contextlib
import errno
import hmac
import json
import resource
import selectors
import socket
import threading
import time
from typing import Any, Optional, Protocol, Tuple

LIMIT = 65536
HEAD_LIMIT = 8192
IDLE_SECONDS = 10.0
# Connections whose request is not complete, of one address and of all. A member's request comes with its first packet,
# so that it is never the oldest of so many. Members may share an address: that of their node, or of a gateway.
YOUNG_OF_ONE = 32
YOUNG = 256
PROBE = "/readyz"
PROBES = 16  # held at a time; a kubelet sends one
Answer = Optional[Tuple[int, Any]]


class App(Protocol):
    hold: float
    token: str

    def stranger(self, path: str, host: str) -> Tuple[int, Any]:
        """The status and JSON object for a caller that does not know the token."""
        ...

    def probed(self) -> Answer:
        """Whether the ranks have started; None while that is open: a probe that waits has not failed."""
        ...

    def answer(self, path: str, body: dict[str, Any], host: str) -> Answer:
        """The status and JSON object for a caller at this address that knows it, or None: hold the request."""
        ...

    def held(self, body: dict[str, Any], late: bool) -> Answer:
        """The same for a held request, asked when something changed or, late, when it has waited long enough."""
        ...

    def sent(self, body: dict[str, Any], answer: Any) -> None:
        """The answer to this request is on its way, whatever becomes of this process."""
        ...

    def changed(self, now: float) -> bool:
        """Whether held requests are to be asked about again; called at least four times a second."""
        ...


class HttpConnection:
    __slots__ = ("body", "data", "host", "open", "since", "sock")

    def __init__(self, sock: socket.socket, host: str, now: float) -> None:
        self.sock = sock
        self.host = host
        self.data = b""
        self.body: dict[str, Any] | None = None
        self.since = now
        self.open = True


def allow_files(needed: int) -> None:
    """Each peer's call stays open while it waits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


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
        # All in order of time, so that the oldest always comes first.
        self.young: dict[HttpConnection, None] = {}
        self.young_of: dict[str, dict[HttpConnection, None]] = {}
        self.waiting: collections.deque[HttpConnection] = collections.deque()
        self.probes: collections.deque[HttpConnection] = collections.deque()

    def run(self) -> None:
        while True:
            ready = self.selector.select(0.25)
            now = time.monotonic()
            for key, _ in ready:
                if key.data is None:
                    self._accept(now)
                elif key.data.open:  # one that was accepted in this round may have taken its place
                    self._read(key.data, now)
            self._expire(now)
            self._answer_probes()
            if self.app.changed(now):
                held, self.waiting = self.waiting, collections.deque()
                for connection in held:
                    self._reconsider(connection, late=False)

    def _accept(self, now: float) -> None:
        for _ in range(64):
            try:
                sock, address = self.listener.accept()
            except BlockingIOError:
                return
            except OSError:
                if self.young:  # out of file descriptors
                    self._close(next(iter(self.young)))
                else:
                    time.sleep(0.05)  # spinning would only slow the ranks
                return
            sock.setblocking(False)
            connection = HttpConnection(sock, address[0], now)
            self.selector.register(sock, selectors.EVENT_READ, connection)
            of_one = self.young_of.setdefault(connection.host, {})
            of_one[connection] = self.young[connection] = None
            self._read(connection, now)
            if len(of_one) > YOUNG_OF_ONE:
                self._close(next(iter(of_one)))
            elif len(self.young) > YOUNG:
                self._close(next(iter(self.young)))

    def _read(self, connection: HttpConnection, now: float) -> None:
        try:
            chunk = connection.sock.recv(LIMIT)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk or len(connection.data) > HEAD_LIMIT + LIMIT or connection.body is not None:
            self._close(connection)
            return
        connection.data += chunk
        head, separator, rest = connection.data.partition(b"\r\n\r\n")
        if not separator:
            if len(head) > HEAD_LIMIT:
                self._close(connection)
            return
        try:
            path, length, token = parse_head(head)
            if path == PROBE:
                self._hold_probe(connection)
                return
            # Nothing is read for a stranger but the head.
            if not hmac.compare_digest(token.encode(), self.app.token.encode()):
                self._send(connection, {}, self.app.stranger(path, connection.host))
                return
            if len(rest) < length:
                return
            body: dict[str, Any] = json.loads(rest) if length else {}
            answer = self.app.answer(path, body, connection.host)
        except Exception as error:  # whatever a stranger sends: without this thread the gang is lost
            self._send(connection, {}, (400, {"error": repr(error)}))
            return
        if answer is None:
            connection.body, connection.since = body, now
            self._grown(connection)
            self.waiting.append(connection)
        else:
            self._send(connection, body, answer)

    def _grown(self, connection: HttpConnection) -> None:
        """Its request is complete, or it is closed."""
        self.young.pop(connection, None)
        of_one = self.young_of.get(connection.host, {})
        of_one.pop(connection, None)
        if not of_one:
            self.young_of.pop(connection.host, None)

    def _hold_probe(self, connection: HttpConnection) -> None:
        connection.body = {}
        self._grown(connection)
        self.probes.append(connection)
        if len(self.probes) > PROBES:
            self._close(self.probes.popleft())

    def _answer_probes(self) -> None:
        answer = self.app.probed() if self.probes else None
        while answer is not None and self.probes:
            connection = self.probes.popleft()
            if connection.open:
                self._send(connection, {}, answer)

    def _reconsider(self, connection: HttpConnection, late: bool) -> None:
        if connection.open and connection.body is not None:
            answer = self.app.held(connection.body, late)
            if answer is None:
                self.waiting.append(connection)
            else:
                self._send(connection, connection.body, answer)

    def _expire(self, now: float) -> None:
        while self.waiting and now - self.waiting[0].since >= self.app.hold:
            self._reconsider(self.waiting.popleft(), late=True)
        while self.young and now - next(iter(self.young)).since >= IDLE_SECONDS:
            self._close(next(iter(self.young)))

    def _send(self, connection: HttpConnection, body: dict[str, Any], answer: tuple[int, Any]) -> None:
        payload = json.dumps(answer[1]).encode()
        head = f"HTTP/1.1 {answer[0]} -\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n"
        # An answer is a few KB and always fits the empty send buffer of a fresh connection.
        # Where the caller went away, it will call again.
        with contextlib.suppress(OSError):
            connection.sock.send(head.encode() + b"Connection: close\r\n\r\n" + payload)
            self.app.sent(body, answer[1])
        self._close(connection)

    def _close(self, connection: HttpConnection) -> None:
        if connection.open:
            connection.open = False
            self._grown(connection)
            self.selector.unregister(connection.sock)
            connection.sock.close()


def parse_head(head: bytes) -> tuple[str, int, str]:
    """The path, the body's length and the token; the latter two are 0 and empty where the head has none."""
    request, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    path = request.split(" ")[1].split("?")[0]
    length = int(headers.get("content-length", 0))
    if length > LIMIT:
        raise ValueError("body too large")
    return path, length, headers.get("authorization", "").partition("Bearer ")[2]


def post(addresses: list[Any], path: str, body: dict[str, Any], token: str, timeout: float) -> tuple[int, Any]:
    """One call, as long as `timeout` at most; `addresses` as getaddrinfo returns them. Raises OSError or ValueError."""
    payload = json.dumps(body).encode()
    with connect(addresses) as sock:
        until = time.monotonic() + timeout
        sock.settimeout(timeout)
        head = f"POST {path} HTTP/1.1\r\nHost: agent\r\nAuthorization: Bearer {token}\r\n"
        sock.sendall(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
        data = b""
        while True:
            sock.settimeout(max(0.001, until - time.monotonic()))
            chunk = sock.recv(LIMIT)
            if not chunk:
                break
            data += chunk
            if len(data) > HEAD_LIMIT + LIMIT:
                raise ValueError("the answer is larger than any of an agent")
    answer, _, rest = data.decode().partition("\r\n\r\n")
    if not rest:
        raise ValueError("no answer")
    return int(answer.split(" ")[1]), json.loads(rest)


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
