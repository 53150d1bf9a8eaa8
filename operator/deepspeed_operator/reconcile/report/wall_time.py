"""Where a run's wall time went: what agents tell of steps, and for the rest what status said meanwhile.

It is counted with each write of status, from what the status before it says: an operator that ends between two writes
has counted nothing, and the next one counts from there. What is counted always adds up to the time since the run was
accepted, so that neither an error of a clock nor a second's fraction adds up.
"""

from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.attempt_status import AttemptOutcome, AttemptStatus, Phase
from deepspeed_operator.api.goodput import Goodput, WallTime
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import DeepSpeedJobStatus
from deepspeed_operator.reconcile.observe.pods import moment, timestamp
from deepspeed_operator.reconcile.report.draft import StatusDraft

_RANKS_RUN: Final = frozenset({Phase.RUNNING, Phase.REPLACING, Phase.STOPPING, Phase.EVICTING})  # agents tell, or will
_SUSPENDED: Final = frozenset({Phase.STOPPING, Phase.SUSPENDED})
_WAITS: Final = frozenset({Reason.SCHEDULING_GATED, Reason.UNSCHEDULABLE, Reason.PODS_REFUSED, Reason.GANG_GIVEN_BACK})
_HANGS: Final = frozenset({Reason.HANG, Reason.NCCL_TIMEOUT})
_NOISE: Final = 1.0  # seconds that an answer may be under way


def goodput(before: DeepSpeedJobStatus, draft: StatusDraft, now: datetime) -> Goodput | None:
    """Return what status says of the run's wall time if it is written now; None while there is no run.

    `before` is the status as it is, and `draft` what it is to become.
    """
    run, attempt = draft.run, draft.attempt
    if run is None or attempt is None:
        return None
    known = draft.goodput
    if known is None or before.attempt is None or before.run is None or before.run.start_time != run.start_time:
        return Goodput(until=run.start_time, seconds=WallTime())
    if before.attempt.phase is Phase.ENDED:
        return known
    began, told, goes_on = moment(run.start_time), draft.wall_time, attempt.phase in _RANKS_RUN
    until = moment(run.completion_time) if run.completion_time is not None else now
    if goes_on and told is not None and told.until is not None:
        until = told.until
    elif goes_on and before.attempt.phase in _RANKS_RUN:
        return known  # nobody has told what came of the time since
    seconds, counted = _with_told(known, before, draft)
    kind = _rest(before, draft, observed=counted is not None)
    if told is not None and told.until is None and told.told.seconds != known.attempt_seconds:
        seconds = seconds.plus(**{kind: told.told.seconds_since})  # until the agent ended
    rest = (until - began).total_seconds() - seconds.total
    first = known.attempt != before.attempt.number
    if first or not goes_on or abs(rest) > _NOISE:
        # Less than nothing: the start of the ranks was counted by the phase, and then their agents tell of it.
        seconds = seconds.plus(**{_coming_up(before) if rest < 0 and first else kind: rest})
    total = seconds.total
    could = total - seconds.queued - seconds.suspended
    stepped = seconds.productive > 0
    return Goodput(
        until=timestamp(began + timedelta(seconds=total)),
        percent=round(100 * seconds.productive / total, 1) if stepped else None,
        ettr_percent=round(100 * seconds.productive / could, 1) if stepped else None,
        seconds=seconds,
        attempt=before.attempt.number if counted is not None else known.attempt,
        attempt_seconds=counted or known.attempt_seconds,
        reached_step=draft.reached_step,
    )


def _with_told(known: Goodput, before: DeepSpeedJobStatus, draft: StatusDraft) -> tuple[WallTime, WallTime | None]:
    """Return the seconds with what the attempt's agents tell now, and all that they have told; None if nothing."""
    assert before.attempt is not None, "the time of an attempt is counted"
    same = known.attempt == before.attempt.number
    counted = (known.attempt_seconds if same else None) or WallTime()
    if draft.wall_time is None:
        return known.seconds, counted if same else None
    told = draft.wall_time.told
    now = told.seconds
    if not told.goes_on_from(counted):
        counted = WallTime()  # an agent that knows nothing of the one before it
    more = {name: getattr(now, name) - getattr(counted, name) for name in WallTime.model_fields}
    if _coming_up(before) == "restarting":
        more["restarting"] += more.pop("starting")
    return known.seconds.plus(**more), now


def _rest(before: DeepSpeedJobStatus, draft: StatusDraft, *, observed: bool) -> str:
    """Return what came of time of which no agent tells.

    `observed`: whether a step of the attempt was ever seen.
    """
    assert before.attempt is not None, "the time of an attempt is counted"
    match before.attempt.phase:
        case Phase.STARTING | Phase.REFUSED:
            obstacle = before.attempt.obstacle
            return "queued" if obstacle is not None and obstacle.reason in _WAITS else _coming_up(before)
        case Phase.QUEUED:
            return "queued"
        case Phase.EVICTING:
            return "queued" if observed or before.attempt.running_time is None else "unobserved"
        case Phase.STOPPING:
            return "suspended" if observed or before.attempt.running_time is None else "unobserved"
        case Phase.SUSPENDED | Phase.ENDED:
            return "suspended"
        case Phase.BACKING_OFF:
            return "restarting"
        case Phase.RUNNING | Phase.REPLACING:
            return _rest_of_running(before.attempt, draft, observed=observed)


def _rest_of_running(attempt: AttemptStatus, draft: StatusDraft, *, observed: bool) -> str:
    if not observed:
        return "unobserved"
    if draft.attempt is not None and draft.attempt.phase in _SUSPENDED:
        return "suspended"
    if draft.attempt is not None and draft.attempt.phase is Phase.EVICTING:
        return "queued"
    if draft.run is not None and draft.run.completion_time is not None and draft.failure is None:
        return "productive"  # the pods' end
    ended = draft.attempts[-1] if draft.attempts else None
    hung = ended is not None and ended.number == attempt.number and ended.reason in _HANGS
    return "hung" if hung else "restarting"


def _coming_up(status: DeepSpeedJobStatus) -> str:
    """Return what bringing up the current attempt is: of a run that has failed before, or not."""
    run, number = status.run, status.attempt_number - 1
    of_run = (each for each in status.attempts if run is not None and each.run_id == run.id)
    failed = any(each.number == number and each.outcome is AttemptOutcome.FAILED for each in of_run)
    return "restarting" if failed else "starting"
