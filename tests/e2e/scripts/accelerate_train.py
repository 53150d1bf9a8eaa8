"""Accelerate, which finds DeepSpeed and its configuration through variables alone."""

import json

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    # Where there is no accelerator, accelerate has no backend of its own choice.
    accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs = torch.randn(64, 8)
    data = DataLoader(TensorDataset(inputs, inputs.sum(dim=-1, keepdim=True)), batch_size=4)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for features, target in data:
        accelerator.backward(functional.mse_loss(model(features), target))
        optimizer.step()
        optimizer.zero_grad()
    facts = {
        "engine": type(model).__name__,
        "distributed": accelerator.distributed_type.value,
        "world": accelerator.num_processes,
        "zero": model.zero_optimization_stage(),
        "micro": model.train_micro_batch_size_per_gpu(),
        "batch": model.train_batch_size(),
    }
    if accelerator.is_main_process:
        print("RESULT", json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
