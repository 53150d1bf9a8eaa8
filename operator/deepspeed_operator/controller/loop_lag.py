"""How late the event loop is: what holds it up delays all jobs, the probes and the Lease."""

import asyncio

from deepspeed_operator.controller.metrics import LOOP_LAG_SECONDS

EVERY_SECONDS = 1.0


async def watch_loop() -> None:
    """Observe by how much a timer rings late, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + EVERY_SECONDS
        await asyncio.sleep(EVERY_SECONDS)
        LOOP_LAG_SECONDS.observe(max(0.0, loop.time() - due))
