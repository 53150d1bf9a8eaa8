"""Saves checkpoints on a volume, and goes on from the last one: after a failure, an eviction, or with another runId."""

import argparse
import os
import time

import deepspeed
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--checkpoints", default="/data/checkpoints")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--save-every", type=int, default=10)
arguments = parser.parse_args()

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.Linear(256, 8))
engine, *_ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config=os.environ["DEEPSPEED_CONFIG"]
)
rank = deepspeed.comm.get_rank()

# Weights, optimizer and schedule of the newest checkpoint that is whole; (None, None) where there is none yet.
path, state = engine.load_checkpoint(arguments.checkpoints)
first = state["step"] if path else 0
if rank == 0:
    print(f"going on from step {first}, {path}" if path else "no checkpoint yet: starting at step 0", flush=True)

for step in range(first, arguments.steps):
    # The data of a step follow from its number, so that a resumed run sees those that it would have seen.
    generator = torch.Generator().manual_seed(step * deepspeed.comm.get_world_size() + rank)
    features = torch.randn(engine.train_micro_batch_size_per_gpu(), 32, generator=generator).to(engine.device)
    loss = nn.functional.mse_loss(engine(features), features[:, :8])
    engine.backward(loss)
    engine.step()
    if (step + 1) % arguments.save_every == 0:
        # By every rank, each its part. `latest` names the checkpoint only once all parts are written.
        engine.save_checkpoint(arguments.checkpoints, client_state={"step": step + 1})
        if rank == 0:
            print(f"step {step + 1} loss {loss.item():.4f} saved", flush=True)
    time.sleep(0.1)  # stands for a larger model
