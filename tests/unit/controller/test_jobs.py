"""What the feed remembers of jobs that it cannot read ends with them, also where the watch has missed their end."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

from deepspeed_operator.controller.bodies import Bodies
from deepspeed_operator.controller.cache import JobCache
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.jobs import JobFeed
from deepspeed_operator.controller.marker import Marker
from deepspeed_operator.controller.metrics import INVALID_JOBS


class Server:
    """Lists these jobs."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []

    async def pages(self, *_: Any, **__: Any) -> AsyncIterator[dict[str, Any]]:
        yield {"metadata": {"resourceVersion": "9"}, "items": self.jobs}


def unreadable(name: str) -> dict[str, Any]:
    metadata = {"namespace": "ml", "name": name, "uid": name, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"nodes": "many"}}


def test_a_job_that_cannot_be_read_is_forgotten_once_no_list_shows_it(tmp_path: Path) -> None:
    async def sweeps() -> None:
        server = Server()
        cache = JobCache(lambda _: None)
        feed = JobFeed(cast("Client", server), cache, Bodies(Marker(tmp_path)), ())
        server.jobs = [unreadable("one"), unreadable("two")]
        await feed._list(None, metadata=False)  # pyright: ignore[reportPrivateUsage]
        assert INVALID_JOBS._value.get() == 2  # pyright: ignore[reportPrivateUsage]
        server.jobs = [unreadable("two")]
        await feed._list(None, metadata=True)  # pyright: ignore[reportPrivateUsage]
        assert INVALID_JOBS._value.get() == 1  # pyright: ignore[reportPrivateUsage]

    asyncio.run(sweeps())
