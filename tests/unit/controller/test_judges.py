"""What a call costs is bounded, and no other call waits for one that costs much."""

import asyncio
import os
import re
import signal
import time
from collections.abc import Awaitable, Callable

import pytest

from deepspeed_operator.controller import judges
from deepspeed_operator.controller.forks import ForkServer
from deepspeed_operator.controller.judges import ExceededError, FailedError, Judges, TimedOutError


def drive(test: Callable[[Judges], Awaitable[None]]) -> None:
    server = ForkServer()

    async def run() -> None:
        asked = Judges(server)
        try:
            await test(asked)
        finally:
            asked.close()

    try:
        asyncio.run(run())
    finally:
        server.socket.close()


@pytest.fixture(autouse=True)
def budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges, "QUICK_SECONDS", 0.1)
    monkeypatch.setattr(judges, "PATIENT_SECONDS", 0.3)


def own_pid(_: str = "") -> int:
    return os.getpid()


def fill(size: int) -> int:
    return len(bytearray(size))


def backtrack(length: int) -> bool:
    """A regular expression that holds the interpreter, and never looks at a signal."""
    return re.match(r"(a+)+$", "a" * length + "b") is not None


def compute(seconds: float) -> float:
    while time.process_time() < seconds:
        pass
    return seconds


def crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wrong() -> None:
    raise ValueError("as the test wants it")


def test_a_call_is_answered_by_another_process_which_stays() -> None:
    async def test(asked: Judges) -> None:
        first = await asked.call("ml", own_pid)
        assert first != os.getpid()
        assert await asked.call("ml", own_pid, "x" * 10_000_000) == first

    drive(test)


def test_a_call_that_takes_too_long_is_ended_whatever_code_it_is_in() -> None:
    async def test(asked: Judges) -> None:
        with pytest.raises(TimedOutError, match=r"more than 0.3 s of CPU time"):
            await asked.call("ml", backtrack, 60)
        assert await asked.call("ml", own_pid)

    drive(test)


def test_a_call_that_takes_too_much_memory_is_ended() -> None:
    async def test(asked: Judges) -> None:
        with pytest.raises(ExceededError, match="MiB of memory"):
            await asked.call("ml", fill, 1 << 30)
        assert await asked.call("ml", fill, 1000) == 1000

    drive(test)


def test_a_call_that_ends_its_process_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # An end within the time of the budget cannot be by the budget, which is of CPU time; a busy machine may be slow.
    monkeypatch.setattr(judges, "PATIENT_SECONDS", 60.0)

    async def test(asked: Judges) -> None:
        with pytest.raises(ExceededError, match="ends the process"):
            await asked.call("ml", crash)
        assert await asked.call("ml", own_pid)

    drive(test)


def test_a_defect_is_told() -> None:
    async def test(asked: Judges) -> None:
        with pytest.raises(FailedError, match="ValueError"):
            await asked.call("ml", wrong)

    drive(test)


def test_a_call_that_needs_more_time_gets_it_apart_from_the_others() -> None:
    async def test(asked: Judges) -> None:
        ended: list[str] = []

        async def slow() -> None:
            await asked.call("slow", compute, 0.2)
            ended.append("slow")

        async def quick() -> None:
            await asked.call("quick", own_pid)
            ended.append("quick")

        await asyncio.gather(slow(), quick())
        assert ended == ["quick", "slow"]

    drive(test)


def test_a_cancelled_call_leaves_no_answer_to_the_next() -> None:
    async def test(asked: Judges) -> None:
        given_up = asyncio.create_task(asked.call("ml", fill, 7))
        await asyncio.sleep(0.001)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert await asked.call("ml", fill, 8) == 8

    drive(test)


def test_who_cannot_judge_any_more_ends() -> None:
    async def test(asked: Judges) -> None:
        ended = asyncio.create_task(asked.run())
        asked._server.socket.shutdown(1)  # pyright: ignore[reportPrivateUsage] -- the server takes it for our end
        await asyncio.wait_for(ended, 60)

    drive(test)
