"""What a run has been through until now, as far as it decides whether another attempt follows."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from deepspeed_operator.api.attempt_status import AttemptOutcome, AttemptStatus
from deepspeed_operator.api.restarts import RepeatedFailure
from deepspeed_operator.api.status import DeepSpeedJobStatus, Run
from deepspeed_operator.reconcile.failure.restart_policy import RunRecord
from deepspeed_operator.reconcile.observe.gang import Gang, last_messages
from deepspeed_operator.reconcile.observe.latest_checkpoint import has_saved
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import moment
from deepspeed_operator.reconcile.observe.rounds import Rounds
from deepspeed_operator.reconcile.report.restart_counts import used
from deepspeed_operator.render.policy_document import HEALTHY_SECONDS

_HEALTHY = timedelta(seconds=HEALTHY_SECONDS)


def run_record(observed: Observed, gang: Gang, run: Run, attempt: AttemptStatus, rounds: Rounds | None) -> RunRecord:
    """Return the record of a run whose attempt ends now.

    `run` and `attempt` have counted all that is known of restarts in place, of which `rounds` is the latest news.
    """
    repeated = run.repeated or RepeatedFailure()
    if rounds is not None and rounds.repeated.count:
        repeated = rounds.repeated
    soon = _ended_soon(attempt.running_time, observed.now)
    return RunRecord(
        used=used(run, attempt, observed.now),
        repeated=repeated,
        progressed=_progressed(observed, gang, attempt, rounds),
        in_a_row=(1 + sum(1 for _ in _soon(observed.job.status, run))) if soon else 0,
        saved=has_saved(observed, gang),
        seed=f"{observed.job.metadata.uid}-{attempt.number}",
    )


def _progressed(observed: Observed, gang: Gang, attempt: AttemptStatus, rounds: Rounds | None) -> bool:
    """Whether the last round got anywhere: a step if its agents can see one, else a stretch of health."""
    if attempt.running_time is None:
        return False
    seen = [message.stepped for message in last_messages(gang) if message.stepped is not None]
    if seen:
        return any(seen)
    began = moment(attempt.running_time)
    if rounds is not None and rounds.last is not None and rounds.last.time is not None:
        began = max(began, datetime.fromtimestamp(rounds.last.time, tz=observed.now.tzinfo))
    return observed.now - began >= _HEALTHY


def _soon(status: DeepSpeedJobStatus, run: Run) -> Iterator[int]:
    """Yield the numbers of the run's latest attempts that all failed soon after their ranks began."""
    for ended in reversed(status.attempts):
        same_run = ended.run_id == run.id and ended.outcome is AttemptOutcome.FAILED
        if not same_run or not _ended_soon(ended.running_time, moment(ended.end_time)):
            return
        yield ended.number


def _ended_soon(running_time: str | None, end: datetime) -> bool:
    return running_time is None or end - moment(running_time) < _HEALTHY
