"""What rank 0's agent tells of the steps that its ranks have made in one round."""

from functools import partial
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.progress import MAX_LOSS, Positive, ProgressSource, Steps, StepSeconds
from deepspeed_operator.reconcile.observe.read_as import read_as

_LONGEST: Final = 100 * 365 * 86_400

_Seconds = Annotated[Positive, Field(le=_LONGEST)]


class ToldProgress(ApiModel):
    """None for what nobody tells. Seconds count from the moment of the answer, by no clock but the agent's own."""

    source: ProgressSource
    step: Steps | None = None
    total_steps: Steps | None = None
    seconds_left: _Seconds | None = None
    seconds_since_update: _Seconds
    loss: str | None = Field(default=None, max_length=MAX_LOSS)
    learning_rate: Annotated[float, Field(allow_inf_nan=False)] | None = None
    samples_per_second: Positive | None = None
    tokens_per_second: Positive | None = None
    step_seconds: StepSeconds | None = None


LeftProgress = Annotated[ToldProgress | None, BeforeValidator(partial(read_as, ToldProgress))]
