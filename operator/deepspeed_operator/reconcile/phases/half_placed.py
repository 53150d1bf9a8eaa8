"""A gang of which the scheduler has placed a part: until when it keeps that, and to whom it gives it back."""

from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.reconcile.actions import FindHalfGangs, GiveBack, Outcome
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.half_gang import HalfGang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.report.outcome import keep_status, timestamp

LOOK_EVERY: Final = timedelta(seconds=10)


def half_placed(observed: Observed, gang: Gang) -> HalfGang | None:
    """Return the gang as one of which a part is placed; None if all of it is, or nothing."""
    return HalfGang.of(gang.pods.values(), observed.job.metadata.creation_timestamp or "")


def giving_back(observed: Observed, gang: Gang) -> Outcome | None:
    """Return what gives the placed pods back, if that is to be; raise Unanswered to look for other such gangs."""
    half = half_placed(observed, gang)
    if half is None or gang.missing:
        return None
    until, now = _kept_until(observed, half), observed.now
    if until is not None and until <= now:
        limit = f"longer than spec.lifecycle.partialGangDeadlineSeconds ({_limit(observed)} s)"
        return _give_back(observed, gang, f"{holding(half)}, {limit}: they are given back.")
    others = observed.facts.get(FindHalfGangs(now - LOOK_EVERY))
    rival = half.older_rival(others.found, now)
    if rival is None:
        return None
    words = f"{holding(half)}, for which the older job {rival.namespace}/{rival.job} waits, while that one holds what "
    words += "this one waits for: they are given back."
    return _give_back(observed, gang, words)


def look_again(observed: Observed, gang: Gang) -> datetime | None:
    """Return when to look again at the gangs of which a part is placed; None if this is none."""
    half = half_placed(observed, gang)
    if half is None:
        return None
    next_look, until = observed.now + LOOK_EVERY, _kept_until(observed, half)
    return next_look if until is None else min(next_look, until)


def holding(half: HalfGang) -> str:
    """Say how many pods are placed, and what they hold since when."""
    held = " and ".join(f"{count} {name}" for name, count in half.held)
    return f"{half.placed} of {half.size} pods placed, holding {held or 'their nodes'} since {timestamp(half.since)}"


def _give_back(observed: Observed, gang: Gang, words: str) -> Outcome:
    return keep_status(observed, GiveBack(gang.attempt, words), check_at=observed.now)


def _limit(observed: Observed) -> int | None:
    lifecycle = observed.job.spec.lifecycle
    return lifecycle.partial_gang_deadline_seconds if lifecycle is not None else None


def _kept_until(observed: Observed, half: HalfGang) -> datetime | None:
    limit = _limit(observed)
    return half.since + timedelta(seconds=limit) if limit is not None else None
