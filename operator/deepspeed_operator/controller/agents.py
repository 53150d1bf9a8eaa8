"""Reading what rank 0's agent says. Whoever has the address by now may be answering, and may say anything."""

import json
from typing import Any

import aiohttp

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.controller.clock import now
from deepspeed_operator.controller.metrics import HUB_ERRORS, HUB_SECONDS
from deepspeed_operator.controller.tokens import Tokens
from deepspeed_operator.reconcile.actions import ReadAgent
from deepspeed_operator.reconcile.observe.observed import AgentReport
from deepspeed_operator.reconcile.runtime.agent_answer import report_of

AGENT_SECONDS = 2.0
AGENTS_AT_A_TIME = 32
AGENT_BYTES = 1 << 20


class Agents:
    """Takes an answer only from the address that was asked: nothing leads elsewhere, and nothing is unpacked."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=AGENTS_AT_A_TIME, force_close=True),
            timeout=aiohttp.ClientTimeout(total=AGENT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def close(self) -> None:
        await self._session.close()

    async def read(self, job: DeepSpeedJob, question: ReadAgent) -> AgentReport | None:
        """Return what the agent tells; None if there is no answer, which is an answer: it would not be essential."""
        host = f"[{question.address}]" if ":" in question.address else question.address
        uid = job.metadata.uid
        headers = {"Authorization": f"Bearer {self._tokens.of(uid, question.attempt)}"}
        url = f"http://{host}:{question.port}/state"
        try:
            with HUB_SECONDS.time():
                async with self._session.get(url, headers=headers, allow_redirects=False) as response:
                    content = await whole(response.content) if response.status == 200 else b""
            state: Any = json.loads(content)
            return report_of(state, uid, question.attempt, now())
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError):
            HUB_ERRORS.inc()
            return None


async def whole(content: aiohttp.StreamReader) -> bytes:
    """Read to the end, however many pieces it comes in; ValueError if it is none."""
    data = b""
    async for piece in content.iter_any():
        data += piece
        if len(data) > AGENT_BYTES:
            raise ValueError("more than any agent says")
    return data
