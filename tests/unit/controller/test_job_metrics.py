"""What Prometheus is told of jobs, and for how long."""

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition, parser

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.status import DeepSpeedJobStatus
from deepspeed_operator.controller import job_metrics
from deepspeed_operator.controller.cache import JobCache
from deepspeed_operator.controller.job_metrics import JobMetrics, note_written
from deepspeed_operator.controller.queue import WorkQueue
from deepspeed_operator.reconcile.actions import JobEvent

RUN = {"startTime": "2026-01-01T00:00:00Z", "world": {"nodes": 1, "slotsPerNode": 1, "size": 1, "dataParallel": 1}}
SECONDS = {"productive": 90, "starting": 10}
GOODPUT = {"until": "2026-01-01T00:01:40Z", "percent": 90.0, "ettrPercent": 95.5, "seconds": SECONDS}


def job(name: str = "llm", version: int = 1, state: str = "Running", **status: Any) -> DeepSpeedJob:
    metadata = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": str(version)}
    ready = {"type": "Ready", "status": "True", "reason": state, "message": "m", "lastTransitionTime": "T"}
    told = {"state": state, "conditions": [ready], **status}
    return DeepSpeedJob.model_validate({"metadata": metadata, "spec": {"training": {"script": "a"}}, "status": told})


class Told:
    """What a scrape of one replica shows."""

    def __init__(self, *, with_loss: bool = False, leads: bool = True) -> None:
        self.cache = JobCache(lambda _: None)
        acquired: Any = SimpleNamespace(acquired=SimpleNamespace(is_set=lambda: leads))
        self.registry = CollectorRegistry()
        with asyncio.Runner() as runner:
            queue = runner.run(self.queue())
        self.registry.register(JobMetrics(self.cache, queue, acquired, with_loss=with_loss))

    async def queue(self) -> WorkQueue:
        return WorkQueue()

    def samples(self) -> dict[str, float]:
        """Samples without the operator's prefix."""
        lines = generate_latest(self.registry).decode().splitlines()
        found = (line.removeprefix("deepspeed_operator_").rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in found if "{" in name}


def progress(**told: Any) -> dict[str, Any]:
    return {"progress": {"source": "Script", "step": 480, "loss": "2.031", "tokensPerSecond": 16896, **told}}


def test_jobs_are_counted_by_namespace_state_and_reason() -> None:
    told = Told()
    for name, state in (("a", "Running"), ("b", "Running"), ("c", "Failed")):
        told.cache.put(job(name, state=state), 0)
    assert told.samples() == {
        'jobs{namespace="ml",reason="Running",state="Running"}': 2,
        'jobs{namespace="ml",reason="Failed",state="Failed"}': 1,
    }


def test_a_job_at_work_has_series_until_it_has_ended_or_is_gone() -> None:
    told, labels = Told(), '{name="llm",namespace="ml"}'
    told.cache.put(job(version=1, **progress(), goodput=GOODPUT), 0)
    expected = {
        "job_step": 480,
        "job_tokens_per_second": 16896,
        "job_goodput_ratio": 0.9,
        "job_ettr_ratio": 0.955,
        "job_productive_seconds": 90,
    }
    assert {name: told.samples()[f"{name}{labels}"] for name in expected} == expected
    told.cache.put(job(version=2, state="Complete", goodput=GOODPUT), 0)
    assert list(told.samples()) == ['jobs{namespace="ml",reason="Complete",state="Complete"}']
    told.cache.put(job(version=3, **progress()), 0)
    told.cache.ended(("ml", "llm"), "uid-llm", 4)
    assert told.samples() == {}


@pytest.mark.parametrize(("loss", "expected"), [("2.031", 2.031), ("nan", float("nan")), ("none", None)])
def test_the_loss_is_told_where_that_was_asked_for(loss: str, expected: float | None) -> None:
    silent, told = Told(), Told(with_loss=True)
    for each in (silent, told):
        each.cache.put(job(**progress(loss=loss)), 0)
    assert not [name for name in silent.samples() if name.startswith("job_loss")]
    found = told.samples().get('job_loss{name="llm",namespace="ml"}')
    assert found == (pytest.approx(expected, nan_ok=True) if expected is not None else None)


def test_there_are_so_many_series_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_metrics, "MOST_JOBS", 3)
    told = Told()
    for number in range(5):
        told.cache.put(job(f"job-{number}", **progress()), 0)
    assert len([name for name in told.samples() if name.startswith("job_step")]) == 3
    assert "deepspeed_operator_jobs_unlisted 2.0" in generate_latest(told.registry).decode()


def test_a_replica_that_stands_by_tells_of_no_job() -> None:
    told = Told(leads=False)
    told.cache.put(job(**progress()), 0)
    assert told.samples() == {}


def restarts() -> dict[str, float]:
    families = (each for each in REGISTRY.collect() if each.name == "deepspeed_operator_restarts")
    return {s.labels["reason"]: s.value for each in families for s in each.samples if s.name.endswith("_total")}


def status(restarted: int, running: str | None = None, **more: Any) -> DeepSpeedJobStatus:
    attempt = {"number": 1, "phase": "Running", "startTime": "2026-01-01T00:00:00Z", "runningTime": running}
    return DeepSpeedJobStatus.model_validate({"restarts": restarted, "run": RUN, "attempt": attempt, **more})


def test_restarts_count_by_their_reason_wherever_it_is_told() -> None:
    before = restarts()
    ended = {"number": 1, "startTime": "T", "endTime": "T", "outcome": "Failed", "reason": "NodeLost"}
    note_written(status(0), status(1), (JobEvent("Warning", "NcclTimeout", "m"),))
    note_written(status(1), status(2, attempts=[ended]), ())
    note_written(status(2), status(4), (JobEvent("Warning", "Made-up", "m"),))
    note_written(status(4), status(4), (JobEvent("Warning", "NodeLost", "m"),))
    note_written(status(4), status(9, run={**RUN, "startTime": "2026-01-02T00:00:00Z"}), ())
    after = restarts()
    more = {reason: after[reason] - before.get(reason, 0) for reason in after}
    assert {reason: count for reason, count in more.items() if count} == {"NcclTimeout": 1, "NodeLost": 1, "Other": 2}


def test_what_is_served_is_openmetrics() -> None:
    openmetrics: Any = exposition.generate_latest  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] -- typed in part
    families: Any = parser.text_string_to_metric_families  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    names = [family.name for family in families(openmetrics(REGISTRY).decode())]
    own = [name for name in names if name.startswith("deepspeed_operator_")]
    assert len(own) > 15
    assert all(re.fullmatch(r"[a-z_]+", name) for name in own)
