"""Where a run's wall time went, in status."""

from typing import Annotated, Final

from pydantic import Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.markers import Timestamp
from deepspeed_operator.api.progress import Steps

LONGEST: Final = 100 * 365 * 86_400

Seconds = Annotated[float, Field(ge=0, le=LONGEST, allow_inf_nan=False)]
Percent = Annotated[float, Field(ge=0, le=100)]


class WallTime(ApiModel):
    """Seconds of wall time, by what came of them. A moment is in one of them alone."""

    productive: Seconds = Field(
        default=0, description="Steps that the run had not made before, and evaluations between them."
    )
    starting: Seconds = Field(
        default=0, description="Until the end of the first step, after the run was accepted or resumed."
    )
    restarting: Seconds = Field(
        default=0, description="From the last step before a failure to the end of the first one after it."
    )
    repeated: Seconds = Field(
        default=0, description="Steps that the run had made before, since the checkpoint it went on from is older."
    )
    saving: Seconds = Field(default=0, description="Checkpoints, as long as the ranks wait for them.")
    hung: Seconds = Field(
        default=0, description="From the last step until it was known that the ranks hang (Hang, NcclTimeout)."
    )
    queued: Seconds = Field(
        default=0, description="Pods waited for a queue, a quota or room on nodes, and none of the ranks ran."
    )
    suspended: Seconds = Field(default=0, description="By spec.suspend, with the end of the pods.")
    unobserved: Seconds = Field(
        default=0, description="The ranks ran, and nothing told of a step: docs/progress.md says what can."
    )

    @property
    def total(self) -> float:
        return sum(getattr(self, name) for name in type(self).model_fields)

    def plus(self, **seconds: float) -> "WallTime":
        """Return it with so many seconds more of these, or less, but never fewer than none."""
        changed = {name: round(max(0.0, getattr(self, name) + more), 2) for name, more in seconds.items()}
        return self.model_copy(update=changed)


class Goodput(ApiModel):
    """How much of its wall time a run made steps that count, from its acceptance until `until`."""

    until: Timestamp = Field(
        description="Up to when it is counted. While the ranks run that is their last step, since one that is under "
        "way may still be lost. Written with the rest of status, so a minute old at most while the run moves."
    )
    percent: Percent | None = Field(
        default=None, description="Goodput: productive of all seconds. Absent before the first step."
    )
    ettr_percent: Percent | None = Field(
        default=None,
        description="Effective training time ratio: productive of all seconds but queued and suspended, in which the "
        "job could not have trained. Absent before the first step.",
    )
    seconds: WallTime = Field(description="All of the time, by what came of it.")
    attempt: int | None = Field(default=None, description="The attempt whose agents told last.")
    attempt_seconds: WallTime | None = Field(
        default=None, description="What they have told; it is a part of seconds. The operator counts on from it."
    )
    reached_step: Steps | None = Field(default=None, description="The highest optimizer step that is known of the run.")
