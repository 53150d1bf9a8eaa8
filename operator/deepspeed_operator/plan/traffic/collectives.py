"""Collectives of one kind, in a step."""

from dataclasses import dataclass
from typing import Final

from deepspeed_operator.plan.engine.groups import Group

ALL_REDUCE: Final = "all-reduce"
REDUCE: Final = "reduce"
ALL_GATHER: Final = "all-gather"
REDUCE_SCATTER: Final = "reduce-scatter"
ALL_TO_ALL: Final = "all-to-all"
SEND: Final = "send"
# How often the payload passes through a rank's link, in units of (ranks − 1) ÷ ranks.
_PASSES: Final = {ALL_REDUCE: 2, REDUCE: 1, ALL_GATHER: 1, REDUCE_SCATTER: 1, ALL_TO_ALL: 1}


@dataclass(frozen=True, slots=True)
class Term:
    """Bytes of the whole tensor, over all calls of a step, among the ranks of one group.

    A bucket that is reduced in parts, to the ranks that own them, is one call. `after`: once the optimizer has stepped.
    """

    collective: str
    payload: int
    what: str
    group: Group
    calls: int = 1
    after: bool = False

    @property
    def wire(self) -> float:
        """Bytes that pass each way through a rank's link, as rings do it."""
        if self.collective == SEND:
            return self.payload
        return _PASSES[self.collective] * (self.group.ranks - 1) / self.group.ranks * self.payload

    @property
    def between_nodes(self) -> float:
        """Bytes that pass each way through a node's network: a ring crosses it once, for each group that does."""
        return self.wire * self.group.sharing if self.group.nodes > 1 else 0.0
