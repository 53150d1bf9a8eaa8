"""How many jobs of a namespace are counted as running, and that several that ask at once do not get one place."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.controller.cache import JobCache, job_key
from deepspeed_operator.controller.queue import Key
from deepspeed_operator.controller.run_counts import RunCounts
from deepspeed_operator.reconcile.actions import CountRuns

MOMENT = "2026-01-01T00:00:00Z"
RUN: dict[str, Any] = {"startTime": MOMENT, "world": {"nodes": 1, "slotsPerNode": 1, "size": 1, "dataParallel": 1}}
ENDED = {**RUN, "completionTime": MOMENT}


def job(name: str, run: dict[str, Any] | None = None, *, namespace: str = "ml", state: str = "Running") -> DeepSpeedJob:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "1"}
    spec = {"training": {"script": "a.py"}}
    return DeepSpeedJob.model_validate({"metadata": metadata, "spec": spec, "status": {"state": state, "run": run}})


def counts(*jobs: DeepSpeedJob, unread: tuple[DeepSpeedJob, ...] = ()) -> RunCounts:
    cache, stored = JobCache(lambda _: None), {job_key(each): each for each in unread}
    for each in jobs:
        cache.put(each, 1)
    for each in unread:
        cache.tell({"metadata": each.metadata.model_dump(by_alias=True)})

    async def whole(key: Key) -> None:
        cache.put(stored[key], 1)

    reader: Any = SimpleNamespace(whole=whole)
    return RunCounts(cache, reader)


def asked(counted: RunCounts, *names: str, most: int = 10) -> list[int]:
    question = CountRuns(most, datetime(2026, 1, 1, tzinfo=UTC))

    async def ask() -> list[int]:
        answers = await asyncio.gather(*(counted.count(("ml", name), question) for name in names))
        return [each.others for each in answers]

    return asyncio.run(ask())


def test_runs_that_have_not_ended_are_counted_suspended_ones_included() -> None:
    others = (
        job("runs", RUN),
        job("waits", RUN, state="Suspended"),
        job("done", ENDED, state="Complete"),
        job("refused", state="Invalid"),
        job("elsewhere", RUN, namespace="other"),
        job("mine", RUN),
    )
    assert asked(counts(*others), "mine") == [2]


def test_what_a_new_process_has_not_read_is_read() -> None:
    assert asked(counts(job("runs", RUN), unread=(job("unread", RUN), job("done", ENDED))), "mine") == [2]


def test_a_place_is_given_once() -> None:
    assert asked(counts(job("runs", RUN)), "a", "b", "a", most=2) == [1, 2, 1]


def test_who_gets_no_place_takes_none() -> None:
    assert asked(counts(job("runs", RUN)), "a", "b", most=1) == [1, 1]
