"""The batch sizes of a run in status."""

from pydantic import Field

from deepspeed_operator.api.base import ApiModel


class Batch(ApiModel):
    """Batch sizes, in samples, as DeepSpeed computes them from the configuration and the world."""

    train: int | None = Field(default=None, description="Samples per optimizer step over all ranks.")
    micro_per_gpu: int | None = Field(default=None, description="Samples per rank and micro step.")
    accumulation: int | None = Field(default=None, description="Micro steps per optimizer step.")
    data_parallel_ranks: int | None = Field(
        default=None,
        description="Ranks among which DeepSpeed divides train: train = microPerGpu × accumulation × "
        "dataParallelRanks. It may differ from world.dataParallel.",
    )
    samples_per_step: int | None = Field(
        default=None, description="Samples that an optimizer step really consumes over all ranks."
    )
