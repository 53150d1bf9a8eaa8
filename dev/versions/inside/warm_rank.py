"""A rank that trains on gloo at a stage, argument 1, from the checkpoint in argument 2 where there is one.

It prints its losses, and nothing in it knows of warm interpreters.
"""

# DeepSpeed is there only.
# pyright: basic, reportMissingImports=false

import os
import random
import sys
import time

STARTED = time.process_time()  # another process may have the processor meanwhile
import deepspeed  # noqa: E402
import numpy as np  # noqa: E402
import setuptools  # noqa: E402, F401  brings distutils, which Python 3.13 has no more and older versions import
import torch  # noqa: E402

IMPORTED = time.process_time()
STAGE, DIRECTORY = sys.argv[1], sys.argv[2]
RANK = int(os.environ["RANK"])
STEPS, WIDTH = 4, 64
CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_force_ds_cpu_optimizer": False,
    "zero_allow_untested_optimizer": True,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}


def layers() -> list[torch.nn.Module]:
    return [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)]


def data() -> torch.Tensor:
    """Of all three generators that a program draws from."""
    return torch.randn(2, WIDTH) + random.random() + torch.from_numpy(np.random.rand(2, WIDTH)).float()


def seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def train(stage: int) -> None:
    config = {**CONFIG, "zero_optimization": {"stage": stage}}
    model = torch.nn.Sequential(*layers())
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    tag, _ = engine.load_checkpoint(DIRECTORY)
    seed(RANK + (100 if tag else 0))
    for _ in range(STEPS):
        loss = engine(data()).square().mean()
        engine.backward(loss)
        engine.step()
        print("loss", loss.item().hex(), flush=True)
    if tag is None:
        engine.save_checkpoint(DIRECTORY)


def main() -> None:
    vars(sys.modules["deepspeed.comm.torch"])["build_shm_op"] = lambda: None  # it would be compiled first
    print("imports", IMPORTED - STARTED, flush=True)
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    seed(1)
    train(int(STAGE))
    torch.distributed.barrier()
    # A thread of gloo's may still drop a tensor; where the interpreter ends meanwhile, C++ aborts the process.
    os._exit(0)


if __name__ == "__main__":
    main()
