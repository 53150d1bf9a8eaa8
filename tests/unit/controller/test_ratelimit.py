"""The token bucket, on a clock of its own."""

import asyncio

from deepspeed_operator.controller.ratelimit import RateLimiter


class Clock:
    def __init__(self) -> None:
        self.now = 1024.0  # with intervals of 1/8 s no sum is rounded

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def seconds_for(limiter: RateLimiter, clock: Clock, calls: int) -> float:
    async def call() -> float:
        begin = clock.now
        for _ in range(calls):
            await limiter.acquire()
        return clock.now - begin

    return asyncio.run(call())


def limiter(clock: Clock) -> RateLimiter:
    return RateLimiter(8, burst=4, clock=clock, sleep=clock.sleep)


def test_a_burst_passes_at_once() -> None:
    clock = Clock()
    assert seconds_for(limiter(clock), clock, 4) == 0


def test_what_exceeds_the_burst_comes_at_the_rate() -> None:
    clock = Clock()
    assert seconds_for(limiter(clock), clock, 20) == 2.0


def test_a_quiet_time_restores_no_more_than_a_burst() -> None:
    clock = Clock()
    bucket = limiter(clock)
    seconds_for(bucket, clock, 25)
    clock.now += 3600
    assert seconds_for(bucket, clock, 4) == 0
    assert seconds_for(bucket, clock, 1) > 0


def test_namespaces_take_turns() -> None:
    clock = Clock()
    passed: list[str] = []

    async def write(bucket: RateLimiter, namespace: str) -> None:
        await bucket.acquire(namespace)
        passed.append(namespace)

    async def run() -> None:
        bucket = limiter(clock)
        await asyncio.gather(*(write(bucket, "flood") for _ in range(20)), write(bucket, "another"))

    asyncio.run(run())
    assert passed.index("another") <= 5, "after the burst, and one of the flood"
    assert len(passed) == 21


def test_a_cancelled_caller_takes_no_turn() -> None:
    clock = Clock()

    async def run() -> float:
        bucket = limiter(clock)
        callers = [asyncio.create_task(bucket.acquire("ml")) for _ in range(20)]
        await asyncio.sleep(0)
        for caller in callers[4:]:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        begin = clock.now
        await bucket.acquire("ml")
        return clock.now - begin

    assert asyncio.run(run()) <= 0.125
