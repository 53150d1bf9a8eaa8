"""Counting what DeepSpeed passes to torch.distributed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dev.versions import scripts

# torch.distributed's function → the collective's name in a plan.
NAMES = {
    "all_reduce": "all-reduce",
    "reduce": "reduce",
    "all_gather_into_tensor": "all-gather",
    "reduce_scatter_tensor": "reduce-scatter",
    "broadcast": "broadcast",
    "all_to_all_single": "all-to-all",
}


def counted(version: str, world: int, cases: Sequence[Mapping[str, Any]]) -> list[dict[tuple[str, int], int]]:
    """Bytes of each collective and number of ranks in one step of linear layers, for each case."""
    asked = json.dumps({"world": world, "cases": cases})
    answers: list[dict[str, int]] = json.loads(scripts.output(version, "traffic.py", given=asked))
    return [dict(_named(answer)) for answer in answers]


def _named(answer: Mapping[str, int]) -> Iterator[tuple[tuple[str, int], int]]:
    for key, size in answer.items():
        name, _, ranks = key.partition(" ")
        if int(ranks) > 1:  # a rank alone sends nothing
            yield (NAMES[name], int(ranks)), size
