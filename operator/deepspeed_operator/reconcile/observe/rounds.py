"""What agents tell of an attempt's rounds: each is one start of the ranks in the pods that are there."""

from functools import partial
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.restarts import Count, RepeatedFailure, Restarts
from deepspeed_operator.reconcile.observe.read_as import read_as

_SHOWN: Final = 200


def _short(text: object) -> object:
    return text[:_SHOWN] if isinstance(text, str) else text


class LastRestart(ApiModel):
    """Why the ranks were started again."""

    reason: str = Field(pattern=r"^[A-Za-z]+$", max_length=64)
    rank: Count | None = None
    pod: str | None = Field(default=None, max_length=253)
    node: str | None = Field(default=None, max_length=253)
    exit_code: Count | None = None
    signal: Count | None = None
    time: int | None = Field(default=None, ge=0, le=2**33)  # by the clock of rank 0's node
    signature: Annotated[str, BeforeValidator(_short)] = ""


class Rounds(ApiModel):
    """How often the ranks have started in the attempt's pods, and why the last time."""

    number: int = Field(ge=1, le=2**31 - 1)
    user: Count = 0
    infrastructure: Count = 0
    uncounted: Count = 0
    repeated: RepeatedFailure = RepeatedFailure()
    last: LastRestart | None = None

    @property
    def restarts(self) -> Restarts:
        return Restarts(user=self.user, infrastructure=self.infrastructure, uncounted=self.uncounted)


ToldRounds = Annotated[Rounds | None, BeforeValidator(partial(read_as, Rounds))]
