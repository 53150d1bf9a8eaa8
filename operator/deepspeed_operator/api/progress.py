"""How far a run is: status.progress."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.markers import Timestamp
from deepspeed_operator.api.plan_status import MAX_MFU_PERCENT

MAX_LOSS: Final = 16

Steps = Annotated[int, Field(ge=0, le=2**62)]
Positive = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ProgressSource(StrEnum):
    """Who tells it, the most trusted first."""

    SCRIPT = "Script"
    KUBEFLOW_CALLBACK = "KubeflowCallback"
    DEEPSPEED_ENGINE = "DeepSpeedEngine"
    DEEPSPEED_LOG = "DeepSpeedLog"
    TRAINER_LOG = "TrainerLog"
    PROGRESS_BAR = "ProgressBar"
    LIGHTNING_BAR = "LightningBar"
    CHECKPOINT = "Checkpoint"


_Seconds = Annotated[Positive, Field(le=1e9)]


class StepSeconds(ApiModel):
    """Seconds of the last steps, 64 at most, evaluations and saved checkpoints between them not counted."""

    median: _Seconds = Field(description="Half of them took no longer.")
    p95: _Seconds = Field(description="Of twenty of them, nineteen took no longer.")


class Progress(ApiModel):
    """How far the run is, as its ranks tell it, and when it will be done. What is not known is missing."""

    source: ProgressSource = Field(
        description="Who tells the step: the first that does of Script (the program's own lines), KubeflowCallback "
        "(transformers), DeepSpeedEngine, DeepSpeedLog (steps_per_print), TrainerLog (what a trainer prints), "
        "ProgressBar (tqdm), LightningBar and Checkpoint (the newest complete one of this start of the ranks). "
        "docs/progress.md says how each is heard."
    )
    step: Steps | None = Field(default=None, description="Optimizer steps of the run, those before a resume included.")
    total_steps: Steps | None = Field(default=None, description="How many there will be. Missing where nobody tells.")
    percent: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None, description="step of totalSteps, rounded down; never guessed from anything else."
    )
    summary: str | None = Field(
        default=None, max_length=32, description="percent for printing; it says whether that is stale. Example: 48%"
    )
    eta: Timestamp | None = Field(
        default=None,
        description="When the last step will be done, by the steps since the ranks started, with all that came between "
        "them. A time, so that it stays true between two writes. Missing while the run does not move.",
    )
    loss: str | None = Field(
        default=None, max_length=MAX_LOSS, description="The latest one that was told; text, since it may be nan."
    )
    learning_rate: Annotated[float, Field(allow_inf_nan=False)] | None = Field(
        default=None, description="That of the optimizer's first parameter group."
    )
    samples_per_second: Positive | None = Field(default=None, description="Over all ranks.")
    tokens_per_second: Positive | None = Field(
        default=None,
        description="Over all ranks: as the program tells it, else samplesPerSecond × spec.model.sequenceLength.",
    )
    step_seconds: StepSeconds | None = Field(default=None, description="What the last steps took.")
    mfu_percent: Annotated[float, Field(ge=0, le=MAX_MFU_PERCENT)] | None = Field(
        default=None,
        description="Model FLOPs utilization of the last steps: status.plan.mfuPercent, whose FLOPs are those of "
        "spec.model and whose GPU is the ranks', at the median of stepSeconds.",
    )
    last_update_time: Timestamp | None = Field(default=None, description="When the step was last seen to change.")
    stale: bool | None = Field(
        default=None,
        description="True: no step was seen for two minutes, or for five times as long as a slow one takes (p95), or "
        "the ranks do not run. What is told is the last that was known.",
    )
