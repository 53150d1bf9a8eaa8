"""How many jobs of a namespace have a run: a platform team may limit it."""

from typing import Final

from deepspeed_operator.controller.cache import JobCache
from deepspeed_operator.controller.clock import now, steady
from deepspeed_operator.controller.jobs import JobReader
from deepspeed_operator.controller.queue import Key
from deepspeed_operator.reconcile.actions import CountRuns
from deepspeed_operator.reconcile.observe.observed import RunCount

# From the answer to the status that records the run, two requests of which either may wait for its turn.
KEPT_SECONDS: Final = 60.0


class RunCounts:
    """Counts, and keeps a place for each job that was told that there is one: several may ask at a time."""

    def __init__(self, jobs: JobCache, reader: JobReader) -> None:
        self._jobs = jobs
        self._reader = reader
        self._kept: dict[Key, float] = {}

    async def count(self, key: Key, question: CountRuns) -> RunCount:
        """Return how many others there are. What a new process has not read yet is read for it."""
        for other, record in [*self._jobs.items()]:
            if other[0] == key[0] and not record.read:
                await self._reader.whole(other)
        self._kept = {job: until for job, until in self._kept.items() if until > steady()}
        others = {job for job, record in self._jobs.items() if record.at_run and not record.leaving} | self._kept.keys()
        count = sum(job[0] == key[0] and job != key for job in others)
        if count < question.most:
            self._kept[key] = steady() + KEPT_SECONDS
        return RunCount(count, now())
