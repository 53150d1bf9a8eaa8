"""What the ranks measured of their first steps, as rank 0's agent tells it."""

from typing import Annotated, Literal

from pydantic import Field

from deepspeed_operator.api.base import ApiModel

_Seconds = Annotated[float, Field(gt=0, le=1e6)]
_Bytes = Annotated[int, Field(gt=0, le=2**50)]


class AllReduce(ApiModel):
    """`points`: bytes, and seconds of one all-reduce of the slowest among `ranks`, which are data-parallel ones."""

    ranks: int = Field(ge=2, le=10**6)
    points: Annotated[tuple[tuple[_Bytes, _Seconds], ...], Field(min_length=1, max_length=8)]

    @property
    def bus_bandwidth(self) -> float:
        """Bytes a second, as nccl-tests defines it: 2(n−1)/n × bytes ÷ seconds; that of the best size."""
        return max(2 * (self.ranks - 1) / self.ranks * size / seconds for size, seconds in self.points)


class Measured(ApiModel):
    """Seconds of a step, the mean of the later ones of the first `steps`; bytes and name of rank 0's GPU, if it is one.

    `peak_memory` is torch.cuda.max_memory_allocated; batch, stage and precision are those that DeepSpeed's engine has.
    """

    steps: int = Field(ge=1, le=10**6)
    step_seconds: _Seconds
    micro_batch: int = Field(ge=1, le=10**9)
    accumulation: int = Field(ge=1, le=10**9)
    stage: int = Field(ge=0, le=3)
    precision: Literal["fp32", "fp16", "bf16"]
    all_reduce: AllReduce | None = None
    device: str | None = Field(default=None, max_length=128)
    device_memory: _Bytes | None = None
    peak_memory: _Bytes | None = None
