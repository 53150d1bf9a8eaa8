"""Starts an engine with each configuration of stdin, on one rank, and prints DeepSpeed's refusal, null if it starts.

With the argument `step` it trains a step, too.
"""

# DeepSpeed is there only.
# pyright: basic, reportMissingImports=false

import json
import os
import sys
import tempfile
from typing import Any
from unittest.mock import MagicMock

import setuptools  # noqa: F401  brings distutils, which Python 3.13 has no more and older versions import

# DeepSpeed prints on stdout; that is where the answers go.
_stdout = os.dup(1)
os.dup2(2, 1)

import deepspeed  # noqa: E402
import deepspeed.comm.torch  # noqa: E402
import torch  # noqa: E402
from deepspeed.ops.op_builder import builder, cpu  # noqa: E402

# What it would compile first: its all-reduce between CPUs, and the optimizers' steps, of which none is made here.
vars(sys.modules["deepspeed.comm.torch"])["build_shm_op"] = lambda: None
for _compiled in (builder.OpBuilder, cpu.CPUAdamBuilder, cpu.FusedAdamBuilder):
    _compiled.load = lambda *_, **__: MagicMock()

# Half precision is for GPUs only, it says; to start, the CPU does it well enough.
_cpu = type(deepspeed.accelerator.get_accelerator())
_cpu.is_fp16_supported = lambda _: True
_cpu.supported_dtypes = lambda _: [torch.float, torch.bfloat16, torch.float16]


def _refusal(config: dict[str, Any]) -> str | None:
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_SIZE="1")
    with tempfile.TemporaryDirectory() as directory:
        meeting = f"file://{directory}/meeting"
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False, init_method=meeting, rank=0, world_size=1)
        model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))
        try:
            engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)
            if sys.argv[1:] == ["step"]:
                engine.backward(engine(torch.ones(1, 16)).sum())
                engine.step()
        except Exception as error:  # whatever it raises is how it refuses
            return f"{type(error).__name__}: {error}"
    return None


def main() -> None:
    """Each configuration in a process of its own: an engine leaves its groups behind."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.write(_stdout, f"{json.dumps(_refusal(json.loads(line)))}\n".encode())
            os._exit(0)
        os.waitpid(child, 0)


main()
