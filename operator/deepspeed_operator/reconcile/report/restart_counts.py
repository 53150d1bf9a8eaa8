"""How restarts are counted: only upwards, and those of the infrastructure for 24 hours.

The hours begin with a restart, and the count with the first restart after them: one time and one number are all that
is kept, whatever the limit is.
"""

from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.attempt_status import AttemptStatus
from deepspeed_operator.api.failure_policy import FailurePolicy
from deepspeed_operator.api.restarts import RecentRestarts, Restarts
from deepspeed_operator.api.status import Run
from deepspeed_operator.job.failure_rules import Budget, budgets_of
from deepspeed_operator.reconcile.observe.pods import moment, timestamp
from deepspeed_operator.reconcile.observe.rounds import Rounds

COUNTED_FOR: Final = timedelta(hours=24)
_MOST_UNCOUNTED: Final = 100_000  # nothing bounds them, and a program may write in its agent's place


def used(run: Run, attempt: AttemptStatus | None, now: datetime) -> dict[Budget, int]:
    """Return how much of each budget the run has used; None for an attempt that is counted in the run."""
    of_user = (run.restarts or Restarts()).plus(attempt.restarts if attempt is not None else None).user
    return {Budget.USER: of_user, Budget.INFRASTRUCTURE: _recent(run, now)}


def left(run: Run, policy: FailurePolicy, now: datetime) -> Restarts:
    """Return what is left of each budget for an attempt that begins."""
    limits, counts = budgets_of(policy), used(run, None, now)
    rest = {budget: max(0, limits[budget] - counts[budget]) for budget in Budget}
    return Restarts(user=rest[Budget.USER], infrastructure=rest[Budget.INFRASTRUCTURE])


def with_restart(run: Run, budget: Budget | None, now: datetime) -> Run:
    """Return the run with one restart more; None for one that counts against no budget."""
    more = {"uncounted": 1} if budget is None else {budget.value: 1}
    counted = run.model_copy(update={"restarts": Restarts(**more).plus(run.restarts)})
    return _with_recent(counted, more.get(Budget.INFRASTRUCTURE, 0), now)


def with_rounds(run: Run, attempt: AttemptStatus, rounds: Rounds, now: datetime) -> tuple[Run, AttemptStatus]:
    """Return both with the restarts in place that an agent tells of, as far as the attempt may have had so many."""
    known, may_have = attempt.restarts or Restarts(), attempt.restarts_left or Restarts()
    told = Restarts(
        user=max(known.user, min(rounds.user, may_have.user)),
        infrastructure=max(known.infrastructure, min(rounds.infrastructure, may_have.infrastructure)),
        uncounted=max(known.uncounted, min(rounds.uncounted, _MOST_UNCOUNTED)),
    )
    if told == known:
        return run, attempt
    after = attempt.model_copy(update={"restarts": told, "round": 1 + told.total})
    return _with_recent(run, told.infrastructure - known.infrastructure, now), after


def total(run: Run, attempt: AttemptStatus | None) -> int:
    """Return how often the ranks of the run have started again."""
    return (run.restarts or Restarts()).plus(attempt.restarts if attempt is not None else None).total


def _recent(run: Run, now: datetime) -> int:
    recent = run.recent_restarts
    return recent.count if recent is not None and now < moment(recent.since) + COUNTED_FOR else 0


def _with_recent(run: Run, more: int, now: datetime) -> Run:
    if not more:
        return run
    count, recent = _recent(run, now), run.recent_restarts
    since = recent.since if count and recent is not None else timestamp(now)
    return run.model_copy(update={"recent_restarts": RecentRestarts(since=since, count=count + more)})
