"""The preflight's program, run as every rank by the ranks' own interpreter: all-reduces of growing size.

Bus bandwidth is 2(n−1)/n × bytes ÷ seconds, as nccl-tests defines it (its doc/PERFORMANCE.md): what the slowest link
carries, whatever the number of ranks n.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import sys
import time
from typing import Any

SIZES = [1 << power for power in range(20, 29, 2)]  # bytes
WARM_UPS, TIMED = 2, 5
CONNECT_SECONDS = 240  # an image that is read for the first time may import torch for minutes
SLOW_SECONDS = 0.5  # of one all-reduce: a larger one would take long and tell no more
BELOW_MINIMUM = 3
LINGER_SECONDS = 0.5


def main() -> None:
    directory, minimum = sys.argv[2], float(sys.argv[3])
    os.environ.setdefault("USE_LIBUV", "0")  # the store that every build of torch has
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    local, ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    gpus = torch.cuda.is_available()
    if gpus:
        torch.cuda.set_device(local % torch.cuda.device_count())
    device = torch.device("cuda" if gpus else "cpu")
    backend = "nccl" if gpus else "gloo"
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=CONNECT_SECONDS))
    best = 0.0
    for size in SIZES if gpus else SIZES[:-1]:  # a pod for the CPU may have little memory
        seconds = measure(torch, dist, torch.zeros(size // 4, device=device))
        bandwidth = 2 * (ranks - 1) / ranks * size / seconds
        best = max(best, bandwidth)
        if dist.get_rank() == 0:
            print(
                f"[deepspeed-operator] {backend} all-reduce of {size >> 20} MiB: {bandwidth / 1e9:.3f} GB/s", flush=True
            )
        if seconds > SLOW_SECONDS:
            break
    with open(os.path.join(directory, f"sweep.{local}"), "w", encoding="utf-8") as file:
        json.dump({"busBandwidth": int(best), "backend": backend}, file)
    # Others may still be taking what this rank sent last, and to end the group would wait for whoever has gone.
    time.sleep(LINGER_SECONDS)
    os._exit(BELOW_MINIMUM if best < minimum else 0)


def measure(torch: Any, dist: Any, data: Any) -> float:
    """Seconds of one all-reduce, of the slowest rank: the same number on all."""
    for _ in range(WARM_UPS):
        dist.all_reduce(data)
    wait(torch, data)
    begun = time.perf_counter()
    for _ in range(TIMED):
        dist.all_reduce(data)
    wait(torch, data)
    slowest = torch.tensor([(time.perf_counter() - begun) / TIMED], dtype=torch.float64, device=data.device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest.item())


def wait(torch: Any, data: Any) -> None:
    if data.is_cuda:
        torch.cuda.synchronize()
