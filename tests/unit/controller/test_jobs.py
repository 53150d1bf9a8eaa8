"""What is remembered of jobs that cannot be read ends with them, also where the watch has missed their end."""

from pathlib import Path
from typing import Any, cast

from deepspeed_operator.controller.bodies import Bodies
from deepspeed_operator.controller.cache import JobCache
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.jobs import JobReader
from deepspeed_operator.controller.marker import Marker
from deepspeed_operator.controller.metrics import INVALID_JOBS
from deepspeed_operator.controller.queue import Key


def unreadable(name: str) -> dict[str, Any]:
    metadata = {"namespace": "ml", "name": name, "uid": name, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"nodes": "many"}}


def test_a_job_that_cannot_be_read_is_forgotten_once_no_list_shows_it(tmp_path: Path) -> None:
    told: list[Key] = []
    cache = JobCache(told.append)
    reader = JobReader(cast("Client", None), cache, Bodies(Marker(tmp_path)))
    for name in ("one", "two"):
        cache.tell(unreadable(name))
        assert reader.take(unreadable(name)) is None
    assert INVALID_JOBS._value.get() == 2  # pyright: ignore[reportPrivateUsage]
    told.clear()
    cache.retain(None, {("ml", "two"): "two"}, 9)
    assert told == [("ml", "one")], "the executor looks at it, and finds it gone"
    reader.forget(("ml", "one"))
    assert INVALID_JOBS._value.get() == 1  # pyright: ignore[reportPrivateUsage]
