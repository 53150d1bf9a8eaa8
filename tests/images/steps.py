"""Runs inside the worker image: loads every op, and takes ZeRO-2 steps with two of them."""

# PyTorch and DeepSpeed are there only.
# pyright: basic, reportMissingImports=false

import importlib
import os
from typing import Any

BUILDERS = ("FusedAdam", "CPUAdam", "CPUAdagrad", "CPULion", "PinMemory", "ShareMemComm")


def load_ops() -> None:
    from deepspeed.ops import op_builder

    for name in BUILDERS:
        print(name, importlib.import_module(getattr(op_builder, f"{name}Builder")().absolute_name()).__file__)


def step(offload: dict[str, Any]) -> str:
    import deepspeed
    import torch

    torch.manual_seed(0)
    config = {
        "train_batch_size": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
        "zero_optimization": {"stage": 2, **offload},
    }
    model = torch.nn.Linear(8, 1)
    engine, optimizer, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    inputs = torch.ones(4 // int(os.environ["WORLD_SIZE"]), 8)
    losses = []
    for _ in range(2):
        loss = engine(inputs).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    assert losses[1] < losses[0], losses
    return f"{type(optimizer.optimizer).__name__} {losses[1]:.5f}"


if __name__ == "__main__":
    load_ops()
    print("stepped", step({}), flush=True)
    print("stepped", step({"offload_optimizer": {"device": "cpu", "pin_memory": True}}), flush=True)
