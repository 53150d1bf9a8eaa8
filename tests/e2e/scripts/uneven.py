"""Rank 1 has fewer batches than rank 0, and leaves as if that were all."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(1_000_000):
    if step == 3 and os.environ["RANK"] == "1":
        print("no more batches", flush=True)
        os._exit(0)  # sys.exit() sometimes aborts in the threads of gloo, and is then no leaving with 0
    dist.all_reduce(torch.zeros(1))
