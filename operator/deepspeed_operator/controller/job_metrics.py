"""Prometheus metrics of jobs, read from the cache when Prometheus asks: a job that is gone has no series."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from deepspeed_operator.api.reason_catalogue import CATALOGUE
from deepspeed_operator.api.status import DeepSpeedJobStatus
from deepspeed_operator.controller.cache import JobCache
from deepspeed_operator.controller.leader import Leadership
from deepspeed_operator.controller.metrics import RESTARTS, TIME_TO_RUNNING_SECONDS
from deepspeed_operator.controller.queue import WorkQueue
from deepspeed_operator.reconcile.actions import JobEvent
from deepspeed_operator.reconcile.observe.pods import moment

MOST_JOBS: Final = 2_000  # with series of their own
_OF_A_JOB: Final = {
    "step": "The last optimizer step that is known",
    "loss": "The last loss that was told",
    "tokens_per_second": "Tokens a second over all ranks",
    "goodput_ratio": "Productive seconds of all since the run was accepted",
    "ettr_ratio": "Productive seconds of all in which the job could have trained",
    "productive_seconds": "Seconds of steps that count, of the run",
}


@dataclass(frozen=True, slots=True, eq=False)
class JobMetrics(Collector):
    """What the replica that leads knows of jobs, as it has last read them.

    `with_loss`: whether the loss of each job is a series, too.
    """

    jobs: JobCache
    queue: WorkQueue
    leadership: Leadership
    with_loss: bool

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Name the series before anything is known."""
        yield from self._families().values()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        families = self._families()
        families["queue"].add_metric([], self.queue.oldest_seconds())
        if self.leadership.acquired.is_set():
            self._count(families["jobs"])
            self._add_figures(families)
        yield from families.values()

    def _families(self) -> dict[str, GaugeMetricFamily]:
        prefix, by_job = "deepspeed_operator", ["namespace", "name"]
        shown = {name: words for name, words in _OF_A_JOB.items() if name != "loss" or self.with_loss}
        return {
            "queue": GaugeMetricFamily(f"{prefix}_queue_oldest_seconds", "Seconds that the oldest waiting job waits"),
            "jobs": GaugeMetricFamily(f"{prefix}_jobs", "DeepSpeedJobs", labels=["namespace", "state", "reason"]),
            "unlisted": GaugeMetricFamily(f"{prefix}_jobs_unlisted", "Active jobs beyond those with own series"),
            **{name: GaugeMetricFamily(f"{prefix}_job_{name}", words, labels=by_job) for name, words in shown.items()},
        }

    def _count(self, family: GaugeMetricFamily) -> None:
        counts: Counter[tuple[str, str, str]] = Counter()
        for (namespace, _), job in self.jobs.items():
            if job.read:
                counts[namespace, job.state.value if job.state is not None else "New", job.reason] += 1
        for labels, count in sorted(counts.items()):
            family.add_metric(list(labels), count)

    def _add_figures(self, families: dict[str, GaugeMetricFamily]) -> None:
        active = [(key, job.figures) for key, job in self.jobs.items() if job.figures is not None]
        families["unlisted"].add_metric([], max(0, len(active) - MOST_JOBS))
        for key, figures in islice(active, MOST_JOBS):
            for name in _OF_A_JOB:
                value = getattr(figures, name)
                if value is not None and name in families:
                    families[name].add_metric(list(key), value)


def register(metrics: JobMetrics) -> None:
    REGISTRY.register(metrics)


def note_written(before: DeepSpeedJobStatus, after: DeepSpeedJobStatus, events: tuple[JobEvent, ...]) -> None:
    """Count what a written status tells: restarts, and how long ranks took to run."""
    same_run = before.run is not None and after.run is not None and before.run.start_time == after.run.start_time
    more = (after.restarts or 0) - (before.restarts or 0) if same_run else 0
    if more > 0:
        ended = after.attempts[-1].reason if len(after.attempts) and after.attempts != before.attempts else None
        told = next((each.reason for each in events if each.reason in CATALOGUE), None)
        RESTARTS.labels(ended if ended in CATALOGUE else told or "Other").inc(more)
    was, now = before.attempt, after.attempt
    if now is not None and now.running_time is not None and (was is None or was.running_time is None):
        TIME_TO_RUNNING_SECONDS.observe((moment(now.running_time) - moment(now.start_time)).total_seconds())
