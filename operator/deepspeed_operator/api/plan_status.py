"""What a run costs: as it was predicted, and as its ranks measured it."""

from typing import Annotated

from pydantic import Field

from deepspeed_operator.api.base import ApiModel

MAX_MESSAGE = 1024
MAX_MFU_PERCENT = 1000  # no GPU does ten times what its data sheet says: more tells of a wrong model

_Seconds = Annotated[float, Field(ge=0)]
_Bytes = Annotated[int, Field(ge=0, le=2**62)]


class PlanStatus(ApiModel):
    """The attempt's first steps beside what was predicted of them. Of what is not known, the field is missing."""

    measured_step_seconds: _Seconds | None = Field(
        default=None, description="Seconds of an optimizer step: the mean of the 6th to the 20th."
    )
    predicted_step_seconds: _Seconds | None = Field(
        default=None,
        description="The same, predicted from the GPU's data sheet and from the all-reduce that was measured.",
    )
    network_percent: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None,
        description="What the step's traffic takes at the measured all-reduce, in percent of the measured step; of the "
        "predicted step where none is measured. Where DeepSpeed sends while it computes, a part of it costs nothing.",
    )
    bus_bandwidth: _Bytes | None = Field(
        default=None,
        description="Bytes a second of an all-reduce among data-parallel ranks, measured before the first step: "
        "2(n-1)/n × bytes ÷ seconds for n ranks. Else that of spec.network.preflight, among all ranks.",
    )
    mfu_percent: Annotated[float, Field(ge=0, le=MAX_MFU_PERCENT)] | None = Field(
        default=None,
        description="Model FLOPs utilization of the measured steps: the FLOPs of spec.model, of which none is counted "
        "twice, in percent of what the data sheet of the ranks' GPUs says. Missing where the GPU or the tokens of a "
        "sample are not known.",
    )
    measured_peak_memory: _Bytes | None = Field(
        default=None,
        description="Bytes of rank 0's GPU that PyTorch had allocated at most (torch.cuda.max_memory_allocated).",
    )
    predicted_peak_memory: _Bytes | None = Field(default=None, description="The same, predicted.")
    message: str | None = Field(
        default=None, max_length=MAX_MESSAGE, description="What a prediction leaves out, and why one is missing."
    )
