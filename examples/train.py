"""Teaches a small network to imitate another. Batch sizes, optimizer, schedule and precision come from ds_config."""

import argparse
import os

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 8))


parser = argparse.ArgumentParser()
parser.add_argument("--deepspeed", default=os.environ.get("DEEPSPEED_CONFIG"), help="path of ds_config.json")
parser.add_argument("--local_rank", type=int, help="given by the deepspeed launcher")
arguments = parser.parse_args()

torch.manual_seed(0)  # the same data and the same initial weights on every rank
model, teacher = network(), network()
inputs = torch.randn(1024, 32)
dataset = TensorDataset(inputs, teacher(inputs).detach())

# Reads RANK, WORLD_SIZE and MASTER_ADDR, connects the ranks and divides the optimizer's state among them.
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=arguments.deepspeed)
micro, accumulation = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
dtype, rank, world = next(engine.parameters()).dtype, dist.get_rank(), dist.get_world_size()
stage = engine.zero_optimization_stage()
print(f"rank {rank} of {world} on {os.uname().nodename}: {engine.device}, {dtype}, ZeRO stage {stage}", flush=True)
print(f"rank {rank} batch {engine.train_batch_size()} = {micro} x {accumulation} x {world}", flush=True)

sampler = DistributedSampler(dataset)  # a different part of the data for each rank
loader = DataLoader(dataset, batch_size=micro, sampler=sampler)
for epoch in range(4):
    sampler.set_epoch(epoch)
    total = torch.zeros((), device=engine.device)
    for features, targets in loader:
        outputs = engine(features.to(engine.device, dtype))
        loss = nn.functional.mse_loss(outputs.float(), targets.to(engine.device))
        engine.backward(loss)
        engine.step()  # changes the weights once all micro batches are accumulated
        total += loss.detach()
    print(f"rank {rank} epoch {epoch + 1} step {engine.global_steps} loss {total.item() / len(loader):.5f}", flush=True)

engine.save_checkpoint("checkpoint")  # each rank its part: for more than an example, on a volume that outlives the pods
