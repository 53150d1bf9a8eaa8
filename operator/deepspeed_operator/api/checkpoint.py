"""spec.checkpoint: where a run saves, and what its agents may do there."""

from pydantic import Field

from deepspeed_operator.api.base import ApiModel


class Checkpoint(ApiModel):
    """Where a run saves, and what its agents may do there."""

    path: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="Directory in which the program saves, such as that of --output_dir or of save_checkpoint(); all "
        "pods see the same one. $(NAME) is replaced by the container's variable NAME. What is on an object store "
        "(s3://…) is not looked at. Unset: taken from training.args (--output_dir, --save_dir, --checkpoint_dir, "
        "--save and the like), else from DeepSpeed's output when it saves. Example: /data/checkpoints",
    )
    repair_latest: bool = Field(
        default=True,
        description="True, the default: before the ranks start, a file `latest` that names a checkpoint which is not "
        "complete is made to name the newest complete one, since DeepSpeed can load no other; the incomplete one "
        "stays. False: it stays as it is, and the start fails.",
    )
