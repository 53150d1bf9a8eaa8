"""Joins the world that its environment names, and says how many ranks it has."""

import torch
from torch import distributed

distributed.init_process_group("gloo")
one = torch.ones(1)
distributed.all_reduce(one)
print(f"WORLD {distributed.get_world_size()} SUM {one.item():.0f}", flush=True)
distributed.destroy_process_group()
