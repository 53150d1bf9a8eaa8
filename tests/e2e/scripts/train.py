"""Trains a small regression in fp32 from a fixed seed, and prints the loss of the whole batch at every step.

The losses depend on the global batch alone: whatever the ZeRO stage, the launcher and the nodes, they are the same.
"""

import argparse
import json

import deepspeed
import torch
from deepspeed import comm
from torch import nn
from torch.nn import functional

STEPS = 6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--local_rank", type=int)  # the deepspeed launcher adds it
    arguments = parser.parse_args()

    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=arguments.config)
    rank, world = comm.get_rank(), comm.get_world_size()
    inputs = torch.randn(STEPS, engine.train_batch_size(), 16, generator=torch.Generator().manual_seed(1))
    targets = inputs.square().sum(dim=-1, keepdim=True) / 16

    losses: list[float] = []
    for step in range(STEPS):
        total = torch.zeros(1)
        mine = (
            batch[step].chunk(world)[rank].chunk(engine.gradient_accumulation_steps()) for batch in (inputs, targets)
        )
        for micro_inputs, micro_targets in zip(*mine, strict=True):
            loss = functional.mse_loss(engine(micro_inputs), micro_targets)
            engine.backward(loss)
            engine.step()
            total += loss.detach() / (world * engine.gradient_accumulation_steps())
        comm.all_reduce(total)
        losses.append(float(total))
    if rank == 0:
        facts = {
            "world": world,
            "zero": engine.zero_optimization_stage(),
            "batch": engine.train_batch_size(),
            "losses": [f"{loss:.5g}" for loss in losses],
        }
        print("RESULT", json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
