"""What a question comes to when its answer cannot be given."""

import asyncio
import contextlib
import json

import aiohttp
import pytest

from deepspeed_operator.controller import verdicts
from deepspeed_operator.controller.judges import Judges
from deepspeed_operator.controller.questions import AGENT_BYTES, corrected_plan, foreseen_plan, whole
from deepspeed_operator.dsconfig.parallelism import Parallelism
from deepspeed_operator.plan.devices import USUAL
from deepspeed_operator.plan.jobs import Case
from deepspeed_operator.plan.measured import Measured
from deepspeed_operator.plan.model import declared
from deepspeed_operator.reconcile.actions import CorrectPlan, ForeseePlan
from tests.unit.controller.test_judges import drive
from tests.unit.reconcile.simulation import job

MEASURED = Measured(steps=20, step_seconds=1.0, micro_batch=1, accumulation=1, stage=2, precision="bf16")


def test_a_defect_of_the_planner_keeps_no_job_from_its_beginning_or_end() -> None:
    case = Case({}, declared(1), 1, 1, 2, version="no version at all", parallelism=Parallelism())

    async def test(judges: Judges) -> None:
        found = await corrected_plan(judges, job(), CorrectPlan(1, case, 1, MEASURED))
        assert found.measured == MEASURED
        assert found.remarks == ("the planner failed: FileNotFoundError",)
        assert await foreseen_plan(judges, job(), ForeseePlan(case, 1, USUAL)) is None

    drive(test)
    assert verdicts.foreseen_plan(ForeseePlan(case, 1, USUAL)) is None


def answered(*pieces: bytes) -> bytes:
    """What is read of an agent whose answer comes in these pieces."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 -\r\nContent-Length: %d\r\n\r\n" % sum(map(len, pieces)))
        for piece in pieces:
            with contextlib.suppress(ConnectionError):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()

    async def ask() -> bytes:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/") as response:
            return await whole(response.content)

    return asyncio.run(ask())


def test_an_agents_answer_may_come_in_several_packets() -> None:
    said = json.dumps({"warnings": ["w" * 3000]}).encode()
    assert answered(said[:1400], said[1400:]) == said


def test_an_answer_without_end_is_none() -> None:
    with pytest.raises(ValueError, match="more than any agent says"):
        answered(*[b"x" * 65536] * (AGENT_BYTES // 65536 + 1))
