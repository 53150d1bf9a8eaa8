"""Which gangs hold nodes and wait for more: the operator knows the pods of all."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from deepspeed_operator.controller.cache import JobCache, PodCache
from deepspeed_operator.controller.clock import now
from deepspeed_operator.reconcile.observe.half_gang import HalfGang
from deepspeed_operator.reconcile.observe.observed import HalfGangs

# Where many gangs wait at once, not each of them looks at all pods.
LASTS: Final = timedelta(seconds=2)


class HalfGangFinder:
    """Looks at all pods, and remembers for a moment what it saw."""

    def __init__(self, jobs: JobCache, pods: PodCache) -> None:
        self._jobs = jobs
        self._pods = pods
        self._last: HalfGangs | None = None

    def find(self) -> HalfGangs:
        """Return all gangs of which a part is placed."""
        moment = now()
        if self._last is None or self._last.read_at + LASTS < moment:
            self._last = HalfGangs(tuple(self._look()), moment)
        return self._last

    def _look(self) -> Iterator[HalfGang]:
        for key in self._pods.jobs():
            job = self._jobs.get(key)
            if job is None or job.leaving:
                continue
            half = HalfGang.of((pod for pod in self._pods.of_job(key) if pod.job_uid == job.uid), job.created)
            if half is not None:
                yield half
