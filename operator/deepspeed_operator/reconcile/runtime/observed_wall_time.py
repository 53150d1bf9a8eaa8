"""The latest that is known of where an attempt's wall time went."""

from deepspeed_operator.reconcile.observe.gang import Gang, last_messages
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.told_wall_time import ToldWallTime


def latest_wall_time(observed: Observed, gang: Gang) -> ToldWallTime | None:
    """Return the latest that an agent tells, in an answer or at its end; None if none does."""
    report = observed.agent
    told = [ToldWallTime(each.wall_time, None) for each in last_messages(gang) if each.wall_time is not None]
    if report is not None and report.wall_time is not None:
        told.append(ToldWallTime.read(report.wall_time, report.read_at))
    return max(told, key=lambda each: each.told.seconds.total, default=None)
