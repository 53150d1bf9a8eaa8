"""Two ranks on one GPU, where a machine has no second: NCCL takes them for those of two nodes, joined by sockets."""

# pyright: basic, reportMissingImports=false

import os

import torch

from bench.gpu import fabrics

SHARED = bool(os.environ.get("BENCH_ONE_GPU"))


def device_of(local_rank: int) -> int:
    """Return the number of this rank's GPU; to be asked before the first collective."""
    if not SHARED:
        return local_rank
    os.environ.update(fabrics.environment("tcp8", int(os.environ["RANK"])))
    # DeepSpeed takes the GPU of this number; torchrun and DeepSpeed's launcher count the ranks of one node.
    device = local_rank % torch.cuda.device_count()
    os.environ["LOCAL_RANK"] = str(device)
    return device
