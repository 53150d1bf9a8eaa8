"""This process's place among the ranks."""

# pyright: basic, reportMissingImports=false

import os
import sys
from typing import Any

import deepspeed
import deepspeed.comm.torch
import torch
import torch.distributed

from bench.gpu.inside import device, one_gpu


def join() -> torch.device:
    """Join the others as a training script does, and return this rank's device."""
    device.check_environment()
    if not device.CUDA:
        # Its own all-reduce between CPUs would be compiled first, and is not what GPUs use.
        vars(sys.modules["deepspeed.comm.torch"])["build_shm_op"] = lambda: None
    here = device.take(one_gpu.device_of(int(os.environ["LOCAL_RANK"])))
    deepspeed.init_distributed(device.BACKEND, auto_mpi_discovery=False, verbose=False)
    return here


def rank() -> int:
    return torch.distributed.get_rank()


def size() -> int:
    return torch.distributed.get_world_size()


def gathered(value: Any) -> list[Any]:
    """Every rank's value, on every rank."""
    found: list[Any] = [None] * size()
    torch.distributed.all_gather_object(found, value)
    return found
