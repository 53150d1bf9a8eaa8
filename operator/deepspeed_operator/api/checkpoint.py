"""Checkpoints: where a run saves and what its agents may do there, and the newest one that is complete."""

from typing import Annotated, Final

from pydantic import Field

from deepspeed_operator.api.attempt_status import legible
from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.markers import Timestamp

MAX_PATH: Final = 1024
MAX_TAG: Final = 256
MAX_REPAIR: Final = 2048


class Checkpoint(ApiModel):
    """Where a run saves, and what its agents may do there."""

    path: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_PATH,
        description="Directory in which the program saves, such as that of --output_dir or of save_checkpoint(); all "
        "pods see the same one. $(NAME) is replaced by the container's variable NAME. What is on an object store "
        "(s3://…) is not looked at. Unset: taken from training.args (--output_dir, --save_dir, --checkpoint_dir, "
        "--save and the like), else where DeepSpeed is seen to save. Example: /data/checkpoints",
    )
    repair_latest: bool = Field(
        default=True,
        description="True, the default: before the ranks start, a file `latest` that names a checkpoint which is not "
        "complete is made to name the newest complete one, since DeepSpeed can load no other; the incomplete one "
        "stays. False: it stays as it is, and the start fails.",
    )
    conversion_deadline_seconds: int = Field(
        default=1800,
        ge=10,
        le=86_400,
        description="With spec.elastic: seconds within which the newest checkpoint is made universal before ranks "
        "begin that are others than have saved it; else the start fails with reason ConversionFailed. They are added "
        "to startupDeadlineSeconds. Default: 1800",
    )


class CheckpointStatus(ApiModel):
    """The newest complete checkpoint of a run, as rank 0's agent sees it."""

    path: Annotated[str, legible(MAX_PATH)] = Field(
        max_length=MAX_PATH,
        description="Directory in which the run saves, as spec or an argument says it, or a save has shown.",
    )
    tag: Annotated[str, legible(MAX_TAG)] | None = Field(
        default=None,
        max_length=MAX_TAG,
        description="Name of the newest complete checkpoint there. Absent where none is, or none can be seen, as on an "
        "object store. Example: global_step40",
    )
    step: int | None = Field(default=None, ge=0, description="Optimizer steps that are in it, where its files say so.")
    time: Timestamp | None = Field(default=None, description="When its last file was written.")
    size_bytes: int | None = Field(default=None, ge=0, description="Bytes of its files.")
    seconds: int | None = Field(
        default=None, ge=0, description="How long it took to save, where rank 0 was seen to begin."
    )
    message: Annotated[str, legible(MAX_REPAIR)] | None = Field(
        default=None,
        max_length=MAX_REPAIR,
        description="What was done to the file `latest` before a start, since it named a checkpoint that is not "
        "complete.",
    )
