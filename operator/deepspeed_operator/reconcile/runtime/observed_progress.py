"""How far the run is, as rank 0's agent tells it: a fact that is written once a minute at most."""

from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.plan_status import MAX_MFU_PERCENT, PlanStatus
from deepspeed_operator.api.progress import Progress, ProgressSource
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.reconcile.admission.plan_forecast import short
from deepspeed_operator.reconcile.observe.gang import Gang, last_messages
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import moment, timestamp
from deepspeed_operator.reconcile.observe.told_progress import ToldProgress
from deepspeed_operator.reconcile.report.shown_progress import as_stale
from deepspeed_operator.reconcile.report.spec_changes import is_of_another_run

# Without a step for so long, or for so many times as a slow step takes, what is known is stale.
STALE_AFTER: Final = timedelta(seconds=120)
SLOW_STEPS: Final = 5


def observed_progress(observed: Observed) -> Progress | None:
    """Return how far the run is, as far as anything is known of it; None before that."""
    before, report = observed.job.status.progress, observed.agent
    if report is None or report.progress is None:
        # Ranks that have started again tell nothing before their first step.
        silent = report is None or report.silent > 0
        if before is None:
            return None
        return as_stale(before, bool(before.stale) or not silent or _is_old(before, observed.now))
    told = _told(observed, report.progress, report.read_at)
    if before is not None and _moment_of(before) == _moment_of(told):
        # It has not moved: by how much two answers' times differ is no news.
        told = told.model_copy(update={"last_update_time": before.last_update_time, "eta": before.eta or told.eta})
    return as_stale(told, _is_old(told, observed.now))


def last_progress(observed: Observed, gang: Gang, ended_at: datetime) -> Progress | None:
    """Return how far the ranks have come that ended then: as rank 0's agent has left it, None if it has not."""
    said = next((each.progress for each in last_messages(gang) if each.progress is not None), None)
    if said is None:
        return None
    return as_stale(_told(observed, said, ended_at), stale=False).model_copy(update={"eta": None})


def _told(observed: Observed, said: ToldProgress, read_at: datetime) -> Progress:
    spec = None if is_of_another_run(observed) else observed.job.spec
    told = as_status(said, read_at, spec)
    return told.model_copy(update={"mfu_percent": mfu_percent(told, observed.job.status.plan)})


def as_status(said: ToldProgress, read_at: datetime, spec: DeepSpeedJobSpec | None) -> Progress:
    """Return it as status has it; `spec`: None while it is that of another run."""
    step, total, left = said.step, said.total_steps, said.seconds_left
    tokens, samples = said.tokens_per_second, said.samples_per_second
    sequence = spec.model.sequence_length if spec is not None and spec.model is not None else None
    if tokens is None and samples is not None and sequence is not None:
        tokens = samples * sequence
    return Progress(
        source=said.source,
        step=step,
        total_steps=total,
        percent=min(100, 100 * step // total) if step is not None and total else None,
        eta=timestamp(read_at + timedelta(seconds=left)) if left is not None else None,
        loss=said.loss,
        learning_rate=said.learning_rate,
        samples_per_second=samples,
        tokens_per_second=tokens,
        step_seconds=said.step_seconds,
        last_update_time=timestamp(read_at - timedelta(seconds=said.seconds_since_update)),
    )


def mfu_percent(progress: Progress, plan: PlanStatus | None) -> float | None:
    """Return that of the first steps, which were measured, for the time that a step takes now.

    None where it is not known, or cannot be: the first steps may have taken much longer than they do now.
    """
    if plan is None or plan.mfu_percent is None or plan.measured_step_seconds is None:
        return None
    median = progress.step_seconds.median if progress.step_seconds is not None else 0
    percent = plan.mfu_percent * plan.measured_step_seconds / median if median else None
    return short(percent) if percent is not None and percent <= MAX_MFU_PERCENT else None


def _moment_of(progress: Progress) -> tuple[object, ...]:
    """Return what changes as the training goes on."""
    return progress.source, progress.step, progress.loss if progress.step is None else None


def _is_old(progress: Progress, now: datetime) -> bool:
    if progress.last_update_time is None or progress.source is ProgressSource.CHECKPOINT:
        return False  # how long it takes until the next one nobody knows
    slow = progress.step_seconds.p95 * SLOW_STEPS if progress.step_seconds is not None else 0
    return now - moment(progress.last_update_time) > max(STALE_AFTER, timedelta(seconds=slow))
