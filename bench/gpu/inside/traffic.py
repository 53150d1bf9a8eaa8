"""What is passed to torch.distributed: counted where DeepSpeed calls it."""

# pyright: basic, reportMissingImports=false

from collections import defaultdict
from functools import wraps
from typing import Any

import torch
import torch.distributed

# Below it are flags, norms and persistent parameters, whose cost is their number and not their size.
SMALLEST = 64 * 1024
# Collective → index of the tensor that is as large as the group's whole data.
_COLLECTIVES = {"all_reduce": 0, "reduce": 0, "broadcast": 0, "all_gather_into_tensor": 0, "reduce_scatter_tensor": 1}


class Counter:
    """Made before DeepSpeed joins a group, since it keeps the functions that it finds then."""

    def __init__(self) -> None:
        self._on = False
        self._found: defaultdict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(lambda: [0, 0])
        for name, whole in _COLLECTIVES.items():
            setattr(torch.distributed, name, self._counting(name, whole, getattr(torch.distributed, name)))

    def begin(self) -> None:
        self._found.clear()
        self._on = True

    def end(self) -> list[dict[str, Any]]:
        """Every collective and group since `begin`: calls and bytes of those above `SMALLEST`."""
        self._on = False
        return [
            {"collective": name, "group": list(group), "calls": calls, "bytes": size}
            for (name, group), (calls, size) in sorted(self._found.items())
        ]

    def _counting(self, name: str, whole: int, original: Any) -> Any:
        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self._on:
                tensors = [each for each in (*args, *kwargs.values()) if torch.is_tensor(each)]
                size = tensors[whole].numel() * tensors[whole].element_size()
                if size > SMALLEST:
                    groups = (*args, *kwargs.values())
                    group = next((each for each in groups if isinstance(each, torch.distributed.ProcessGroup)), None)
                    found = self._found[name, tuple(torch.distributed.get_process_group_ranks(group))]
                    found[0] += 1
                    found[1] += size
            return original(*args, **kwargs)

        return wrapper
