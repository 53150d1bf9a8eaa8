"""What this process remembers of a job besides the caches. All of it can be asked for again."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import uniform

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.status import DeepSpeedJobStatus
from deepspeed_operator.controller.clock import now, steady
from deepspeed_operator.reconcile.actions import Outcome
from deepspeed_operator.reconcile.observe.observed import Facts, KeptChildren, Refusal, RefusalReason

FIRST_RETRY = timedelta(seconds=30)  # a quota is freed by people, and by jobs that end
LONGEST_RETRY = timedelta(minutes=5)
LONGEST_CLEANUP = timedelta(hours=1)  # nobody waits for it, and many jobs may have ended
CONFIRMED_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Ensured:
    """A child that was there with this content at a moment of the steady clock."""

    digest: str
    at: float


@dataclass(slots=True)
class JobMemory:
    """Of one job, by its uid."""

    uid: str
    facts: Facts = field(default_factory=Facts)
    ensured: dict[tuple[str, str], Ensured] = field(default_factory=dict[tuple[str, str], Ensured])  # by kind, name
    begun_attempt: int | None = None  # recorded by this process, so that its children cannot exist before
    refusals: int = 0
    namespace_terminating: bool = False
    # The last status, and what the API server kept of it, where that is less: an older CRD does not know all fields.
    written: DeepSpeedJobStatus | None = None
    kept: DeepSpeedJobStatus | None = None
    untold: Outcome | None = None  # whose status is being written: where the answer is lost, its events are not
    _written_version: tuple[str, float] = ("", 0.0)

    def begin(self, attempt: int) -> None:
        """Forget what was about the attempt before."""
        self.begun_attempt = attempt
        self.ensured.clear()
        self.facts = replace(self.facts, confirmed_missing=frozenset())

    def note_written(self, job: DeepSpeedJob) -> None:
        """Note a job as our own write returned it: it was there, with no other change, when that was answered."""
        self._written_version = job.metadata.resource_version, steady()

    def just_written(self, job: DeepSpeedJob) -> bool:
        """Whether that was a moment ago; it counts once."""
        (version, at), self._written_version = self._written_version, ("", 0.0)
        return version == job.metadata.resource_version and steady() - at < CONFIRMED_SECONDS

    def whole(self, job: DeepSpeedJob) -> DeepSpeedJob:
        """Return the job with the status that was written, if it has what was kept of it."""
        if self.written is None or self.kept != job.status:
            return job
        return job.model_copy(update={"status": self.written})

    def refusal(self, attempt: int, reason: RefusalReason, message: str) -> Refusal:
        """Make a refusal; every further one waits longer."""
        return Refusal(attempt, reason, message, self._retry_at(LONGEST_RETRY))

    def kept_children(self, attempt: int, message: str) -> KeptChildren:
        """Say why what a run has left is kept; every further try waits longer."""
        return KeptChildren(attempt, message, self._retry_at(LONGEST_CLEANUP))

    def _retry_at(self, longest: timedelta) -> datetime:
        wait = min(FIRST_RETRY * 2 ** min(self.refusals, 10), longest)
        self.refusals += 1
        # At least the nominal wait: a retry that comes early is refused again.
        return now() + wait * uniform(1.0, 1.25)  # noqa: S311 -- jitter
