"""The engine that deepspeed.initialize made, as it is."""

from typing import Annotated, Literal

from pydantic import Field

from deepspeed_operator.api.base import ApiModel

_Samples = Annotated[int, Field(ge=1, le=2**62)]


class Engine(ApiModel):
    """DeepSpeed's first engine that trains, as it told rank 0. What it does not tell is missing."""

    world: Annotated[int, Field(ge=1, le=10**7)] = Field(description="Ranks of torch.distributed's default group.")
    stage: Annotated[int, Field(ge=0, le=3)] | None = Field(default=None, description="ZeRO stage.")
    precision: Literal["fp32", "fp16", "bf16"] | None = Field(
        default=None, description="fp32 unless bf16 or fp16 is enabled."
    )
    micro_batch: _Samples | None = Field(default=None, description="Samples per rank and micro step.")
    accumulation: _Samples | None = Field(default=None, description="Micro steps per optimizer step.")
    train_batch: _Samples | None = Field(default=None, description="Samples per optimizer step over all ranks.")
    optimizer: str | None = Field(default=None, max_length=64, description="Its name; missing if there is none.")
    own_optimizer: bool | None = Field(
        default=None, description="Whether the script passed an optimizer: then that of dsConfig is ignored."
    )
    own_scheduler: bool | None = Field(
        default=None, description="Whether the script passed a scheduler: then that of dsConfig is ignored."
    )
