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
