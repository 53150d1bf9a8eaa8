"""Trains two steps with PyTorch Lightning for each question of stdin: {config, trainer} → how it refused, else sizes.

Lightning's strategy trains on CUDA devices only; here the CPU stands for one.
"""

# DeepSpeed and Lightning are there only.
# pyright: basic, reportMissingImports=false

import json
import os
import sys
import tempfile
from typing import Any
from unittest.mock import MagicMock

import setuptools  # noqa: F401  brings distutils, which Python 3.13 has no more and older versions import

# Both print on stdout; that is where the answers go.
_stdout = os.dup(1)
os.dup2(2, 1)

import beforehand  # noqa: E402
import deepspeed  # noqa: E402
import pytorch_lightning as lightning  # noqa: E402
import pytorch_lightning.strategies.deepspeed as strategies  # noqa: E402
import torch  # noqa: E402
from deepspeed.ops.op_builder import builder, cpu  # noqa: E402
from pytorch_lightning.accelerators import CPUAccelerator  # noqa: E402

beforehand.prepare_cpu()
# DeepSpeed would compile them first: the optimizers' steps.
for _compiled in (builder.OpBuilder, cpu.CPUAdamBuilder, cpu.FusedAdamBuilder):
    _compiled.load = lambda *_, **__: MagicMock()
_BATCH = 3


class _Device(CPUAccelerator):
    @staticmethod
    def get_parallel_devices(devices: int) -> list[torch.device]:
        return [torch.device("cpu", index) for index in range(devices)]


strategies.CUDAAccelerator = _Device
# Half precision is for GPUs only, DeepSpeed says; to start, the CPU does it well enough.
_cpu = type(deepspeed.accelerator.get_accelerator())
_cpu.is_fp16_supported = lambda _: True
_cpu.supported_dtypes = lambda _: [torch.float, torch.bfloat16, torch.float16]


class _Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return self.layer(batch[0].to(self.layer.weight.dtype)).float().square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def _fitted(question: dict[str, Any], directory: str) -> dict[str, Any]:
    strategy = strategies.DeepSpeedStrategy(config=question["config"], process_group_backend="gloo")
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    options = {"max_steps": 2, "accelerator": _Device(), "devices": 1, "default_root_dir": directory, **quiet}
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(24, 8)), batch_size=_BATCH)
    try:
        lightning.Trainer(strategy=strategy, **options, **question["trainer"]).fit(_Model(), loader)
    except Exception as error:  # whatever it raises is how it refuses
        return {"refused": f"{type(error).__name__}: {error}"}
    engine = strategy.model
    sizes = {"micro": engine.train_micro_batch_size_per_gpu(), "accumulation": engine.gradient_accumulation_steps()}
    return {"refused": None, **sizes, "clipping": engine.gradient_clipping()}


def main() -> None:
    """Each question in a process of its own: an engine leaves its groups behind."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            with tempfile.TemporaryDirectory() as directory:
                os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", USE_LIBUV="0")
                os.write(_stdout, f"{json.dumps(_fitted(json.loads(line), directory))}\n".encode())
            os._exit(0)
        os.waitpid(child, 0)


main()
