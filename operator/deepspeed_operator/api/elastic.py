"""spec.elastic: fewer nodes than the job asks for; and the numbers of nodes that a run may have."""

from typing import Annotated, Final

from pydantic import Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.batch_status import Batch
from deepspeed_operator.api.markers import Atomic, Cel

MAX_SIZES: Final = 16


class Elastic(ApiModel):
    """With how few nodes a run goes on where there is no room for all."""

    min_nodes: int = Field(
        ge=1,
        le=10_000,
        description="Fewest pods of an attempt. Where the scheduler has had no room for some of the pods for "
        "failurePolicy.replacementDeadlineSeconds, the next attempt has the largest number for which there was, of "
        "those that dsConfig and parallelism allow; each later one begins with spec.nodes again. The global batch "
        "stays: gradient_accumulation_steps of that attempt's configuration is raised. status.run.elastic has the "
        "numbers. docs/elastic.md. Example: 2",
    )


MIN_NODES_AT_MOST_NODES = Cel(
    "!has(self.elastic) || self.elastic.minNodes <= self.nodes",
    "spec.elastic.minNodes: a run has spec.nodes at most; write that or less",
)


class ElasticSize(ApiModel):
    """A number of nodes that a run may have, and what it comes to there."""

    nodes: int = Field(description="How many pods it has.")
    data_parallel: int = Field(description="Ranks that see different data.")
    batch: Batch | None = Field(default=None, description="Batch sizes, as DeepSpeed computes them there.")
    accumulation: int | None = Field(
        default=None,
        description="gradient_accumulation_steps as the configuration of such an attempt has it. Absent: as dsConfig "
        "has it.",
    )


class RunElastic(ApiModel):
    """The numbers of nodes that a run may have."""

    nodes: int = Field(description="How many it was accepted with, and each attempt begins with, where there is room.")
    converts: bool | None = Field(
        default=None,
        description="True: where the number changes, the newest checkpoint is made universal before the ranks begin, "
        "and from then on each attempt's configuration has checkpoint.load_universal. Absent: it loads as it is.",
    )
    resized: bool | None = Field(default=None, description="Whether an attempt has had another number. Absent: none.")
    sizes: Annotated[list[ElasticSize], Atomic()] = Field(
        max_length=MAX_SIZES,
        description="All of them, the fewest nodes first; of more than 16 some are left out.",
    )

    @property
    def loads_universal(self) -> bool:
        """Whether the ranks load universal checkpoints, which rank 0's agent makes before they begin."""
        return bool(self.converts and self.resized)

    def size_of(self, nodes: int) -> ElasticSize | None:
        """The size with so many nodes; None if the run has none."""
        return next((each for each in self.sizes if each.nodes == nodes), None)
