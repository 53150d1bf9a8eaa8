"""How all ranks ended, as rank 0's agent has heard of them when the attempt ended."""

from functools import partial
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.restarts import Count
from deepspeed_operator.api.status import MAX_ENDINGS
from deepspeed_operator.reconcile.observe.read_as import read_as

_LONGEST: Final = 2**31  # seconds

ToldEnding = tuple[
    Count | None, Count, Count | None, Count | None, Annotated[float, Field(ge=0, le=_LONGEST, allow_inf_nan=False)]
]


class RankEndings(ApiModel):
    """How many failed by themselves, were stopped, and had ended with 0 before.

    `first`: of those that failed, the rank (None: the program that starts them), the index of the pod, exit code,
    signal, and how many seconds after the first.
    """

    failed: Count
    stopped: Count
    left: Count
    first: list[ToldEnding] = Field(max_length=MAX_ENDINGS)


ToldEndings = Annotated[RankEndings | None, BeforeValidator(partial(read_as, RankEndings))]
