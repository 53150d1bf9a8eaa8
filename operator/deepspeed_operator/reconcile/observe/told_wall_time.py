"""What rank 0's agent tells of where its attempt's wall time went."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.goodput import Seconds, WallTime
from deepspeed_operator.api.progress import Steps
from deepspeed_operator.reconcile.observe.read_as import read_as

_CLOSE: Final = 0.05  # by so much two sums of the same seconds may differ


class AgentWallTime(ApiModel):
    """Seconds up to the last step or save of rank 0; `seconds_since`: how long that was ago, by the agent's clock."""

    starting: Seconds
    restarting: Seconds
    productive: Seconds
    repeated: Seconds
    saving: Seconds
    hung: Seconds
    seconds_since: Seconds
    reached: Steps = Field(default=0)  # the highest step

    @property
    def seconds(self) -> WallTime:
        return WallTime(**self.model_dump(exclude={"seconds_since", "reached"}))

    def goes_on_from(self, before: WallTime) -> bool:
        """Whether it contains what was told before: seconds only grow, unless somebody counts anew."""
        now = self.seconds
        return all(getattr(now, name) >= getattr(before, name) - _CLOSE for name in WallTime.model_fields)


@dataclass(frozen=True, slots=True)
class ToldWallTime:
    """The latest that is known of an attempt's wall time.

    `until`: the last step or save, by the operator's clock; None for what an agent has left when it ended.
    """

    told: AgentWallTime
    until: datetime | None

    @classmethod
    def read(cls, told: AgentWallTime, read_at: datetime) -> "ToldWallTime":
        """Return what a living agent has answered at this time."""
        return cls(told, read_at - timedelta(seconds=told.seconds_since))


LeftWallTime = Annotated[AgentWallTime | None, BeforeValidator(partial(read_as, AgentWallTime))]
