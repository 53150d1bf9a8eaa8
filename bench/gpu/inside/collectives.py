"""How long collectives take on this fabric, by size: what a step time is predicted from."""

# pyright: basic, reportMissingImports=false

import statistics
from typing import Any

import torch
import torch.distributed as dist

from bench.gpu.inside import device, world

_KIB = 1024
_SIZES = (256 * _KIB, 4 * _KIB**2, 32 * _KIB**2, 256 * _KIB**2, 1024 * _KIB**2)
_ROUNDS = 5


def sweep(here: torch.device, largest: int) -> list[dict[str, Any]]:
    """Each collective at each size, in bytes of the group's whole data; seconds of each call after a first."""
    found: list[dict[str, Any]] = []
    for size in (each for each in _SIZES if each <= largest):
        whole = torch.zeros(size // 2, dtype=torch.bfloat16, device=here)
        part = whole.new_zeros(whole.numel() // world.size())
        calls = {
            "all-reduce": lambda whole=whole: dist.all_reduce(whole),
            "all-gather": lambda whole=whole, part=part: dist.all_gather_into_tensor(whole, part),
            "reduce-scatter": lambda whole=whole, part=part: dist.reduce_scatter_tensor(part, whole),
            "reduce": lambda whole=whole: _reduce(whole),
        }
        for name, call in calls.items():
            if device.CUDA or name != "reduce-scatter":
                times = [device.timed(call) for _ in range(_ROUNDS + 1)][1:]
                found.append({"collective": name, "bytes": size, "seconds": statistics.median(times), "times": times})
    return found


def _reduce(whole: torch.Tensor) -> None:
    """Each part to its rank, as DeepSpeed does it without use_multi_rank_bucket_allreduce."""
    parts = whole.chunk(world.size())
    for each in [dist.reduce(part, rank, async_op=True) for rank, part in enumerate(parts)]:
        each.wait()
