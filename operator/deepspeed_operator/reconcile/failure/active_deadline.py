"""How long the ranks of a run may run, over all of its attempts."""

from datetime import datetime, timedelta

from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Failure
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import moment


def active_deadline(observed: Observed) -> datetime | None:
    """Return when the run will have run for as long as it may; None while its ranks do not run, or without a limit.

    A run that has used its time up is due at once, before its ranks start again.
    """
    limit, since = observed.run.active_deadline_seconds, observed.attempt.running_time
    if limit is None:
        return None
    left = timedelta(seconds=limit - (observed.run.active_seconds or 0))
    if since is not None:
        return moment(since) + left
    return observed.now if left <= timedelta(0) else None


def deadline_exceeded(observed: Observed) -> Failure:
    """Return the failure of a run that has run for as long as it may."""
    limit = observed.run.active_deadline_seconds
    words = f"the ranks have run for {limit} s, as long as spec.lifecycle.activeDeadlineSeconds lets them"
    return Failure(reason=Reason.DEADLINE_EXCEEDED, message=words)
