"""What is taken for the answer of rank 0's agent, whoever has its address by now."""

import asyncio
import contextlib
import gzip
import hashlib
import json
from collections.abc import Sequence

import pytest

from deepspeed_operator.controller.agents import AGENT_BYTES, Agents
from deepspeed_operator.controller.tokens import Tokens
from deepspeed_operator.reconcile.actions import ReadAgent
from deepspeed_operator.reconcile.observe.observed import AgentReport
from tests.unit.reconcile.simulation import job

STATE = {"protocol": 3, "uidDigest": hashlib.sha256(b"job-1").hexdigest(), "attempt": 1, "deepspeed": "0.18.9"}
SAID = json.dumps({**STATE, "warnings": ["w" * 3000]}).encode()


class Pod:
    """Answers every request with these bytes, and keeps what it was asked."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.asked: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        for piece in self.pieces:
            with contextlib.suppress(ConnectionError):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()


def head(length: int, status: str = "200 -", *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {length}", *lines, "\r\n"]).encode()


def read(pod: Pod, others: Sequence[Pod] = (), times: int = 1) -> AgentReport | None:
    """What is read of a job's rank 0; each of the others listens on a port of its own, which is put for PORT."""

    async def ask() -> AgentReport | None:
        async with contextlib.AsyncExitStack() as stack:
            for other in others:
                elsewhere = await stack.enter_async_context(await asyncio.start_server(other.serve, "127.0.0.2", 0))
                port = str(elsewhere.sockets[0].getsockname()[1]).encode()
                pod.pieces = tuple(piece.replace(b"PORT", port) for piece in pod.pieces)
            server = await stack.enter_async_context(await asyncio.start_server(pod.serve, "127.0.0.1", 0))
            agents = Agents(Tokens(b"a key"))
            stack.push_async_callback(agents.close)
            question = ReadAgent(1, "127.0.0.1", server.sockets[0].getsockname()[1])
            return [await agents.read(job(), question) for _ in range(times)][-1]

    return asyncio.run(ask())


def test_an_answer_may_come_in_several_packets() -> None:
    report = read(Pod(head(len(SAID)), SAID[:1400], SAID[1400:]))
    assert report is not None
    assert report.warnings == ("w" * 3000,)


def test_the_agent_is_shown_the_token_of_the_attempt() -> None:
    pod = Pod(head(len(SAID)), SAID)
    read(pod)
    assert f"Authorization: Bearer {Tokens(b'a key').of('job-1', 1)}\r\n" in pod.asked[0]


def test_a_redirect_leads_nowhere() -> None:
    elsewhere = Pod(head(len(SAID)), SAID)
    assert read(Pod(head(0, "302 Found", "Location: http://127.0.0.2:PORT/state")), [elsewhere]) is None
    assert elsewhere.asked == []


@pytest.mark.parametrize("status", ["201 -", "206 -", "404 -", "500 -"])
def test_what_comes_with_another_status_is_no_answer(status: str) -> None:
    assert read(Pod(head(len(SAID), status), SAID)) is None


def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert read(Pod(head(len(SAID)), SAID)) is not None


def test_no_cookie_comes_back() -> None:
    pod = Pod(head(len(SAID), "200 -", "Set-Cookie: seen=yes"), SAID)
    read(pod, times=2)
    assert len(pod.asked) == 2
    assert "seen" not in pod.asked[1]


def test_nothing_is_unpacked() -> None:
    packed = gzip.compress(SAID)
    assert read(Pod(head(len(packed), "200 -", "Content-Encoding: gzip"), packed)) is None


def test_an_answer_without_end_is_none() -> None:
    pieces = [b" " * 65536] * (AGENT_BYTES // 65536) + [SAID]
    assert read(Pod(head(sum(map(len, pieces))), *pieces)) is None


def test_what_a_stranger_is_told_is_no_report() -> None:
    """The operator is one where the key has changed since the attempt began."""
    said = b'{"phase": "Running"}'
    assert read(Pod(head(len(said)), said)) is None
