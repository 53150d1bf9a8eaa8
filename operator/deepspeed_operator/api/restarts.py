"""How often ranks have started again, in status."""

from typing import Annotated, Final

from pydantic import Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.markers import Atomic, Timestamp

MAX_NODES: Final = 50
LARGEST_COUNT: Final = 2**31 - 1
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]


class Restarts(ApiModel):
    """Restarts, by what they count against."""

    user: Count = Field(default=0, description="After failures of the user's program: spec.failurePolicy.maxRestarts.")
    infrastructure: Count = Field(
        default=0,
        description="After failures of nodes, network and cluster, disruptions, and signals that nobody explains: "
        "spec.failurePolicy.maxInfrastructureRestarts.",
    )
    uncounted: Count = Field(default=0, description="By a rule that says RestartWithoutCounting.")

    @property
    def total(self) -> int:
        return self.user + self.infrastructure + self.uncounted

    def plus(self, other: "Restarts | None") -> "Restarts":
        """Return the sum; None adds nothing."""
        if other is None:
            return self
        return Restarts(
            user=self.user + other.user,
            infrastructure=self.infrastructure + other.infrastructure,
            uncounted=self.uncounted + other.uncounted,
        )


class RecentRestarts(ApiModel):
    """Infrastructure restarts of 24 hours."""

    since: Timestamp = Field(description="When the first of them was counted; 24 hours later the count begins anew.")
    count: Count = Field(description="How many there were since.")


class BlamedNode(ApiModel):
    """A node that was at fault."""

    name: str = Field(max_length=253, description="The node.")
    times: Annotated[list[Timestamp], Atomic()] = Field(max_length=2, description="The last two times, in order.")


class RepeatedFailure(ApiModel):
    """A failure that comes again and again, without an optimizer step in between."""

    key: Annotated[str, Field(max_length=16)] | None = Field(
        default=None, description="Digest of its reason and words, numbers left out. Absent: none."
    )
    count: Count = Field(default=0, description="How often it came in a row.")
