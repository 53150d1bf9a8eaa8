"""What a rank holds while DeepSpeed trains, on gloo: {world, layers, configs} → bytes of tensors at each phase's worst.

With `experts` beside them, a layer of so many follows, as wide as the last one, which the ranks divide.

Storages are counted as operators make them; what one operator holds for itself is not seen, nor are scalars.
"""

# DeepSpeed is there only.
# pyright: basic, reportMissingImports=false

import json
import os
import sys
import tempfile
import traceback
from functools import partial
from typing import Any

import setuptools  # noqa: F401  brings distutils, which Python 3.13 has no more and older versions import

# DeepSpeed prints on stdout; that is where the answer goes.
_stdout = os.dup(1)
os.dup2(2, 1)

import beforehand  # noqa: E402
import deepspeed  # noqa: E402
import torch  # noqa: E402
import torch.distributed  # noqa: E402
from deepspeed.moe.layer import MoE  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

beforehand.prepare_cpu()

# The norms of experts are made of plain numbers, which GPUs' type takes.
type(deepspeed.accelerator.get_accelerator()).FloatTensor = property(lambda _: partial(torch.tensor, dtype=torch.float))

_SMALLEST = 4096
_STEPS = 2  # the first one makes the optimizer's states


class _Storages(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self._there: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor) and each.device.type == "cpu":
                storage = each.untyped_storage()
                if storage.nbytes() >= _SMALLEST and storage._cdata not in self._there:
                    self._there[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
                    self.peak = max(self.peak, self.held())
        return result

    def held(self) -> int:
        self._there = {key: value for key, value in self._there.items() if not value[0].expired()}
        return sum(size for _, size in self._there.values())

    def taken(self) -> int:
        """The peak since it was last taken."""
        peak, self.peak = self.peak, self.held()
        return peak


class _Experts(torch.nn.Module):
    def __init__(self, width: int, count: int, ranks: int) -> None:
        super().__init__()
        self.layer = MoE(width, torch.nn.Linear(width, width), num_experts=count, ep_size=ranks, min_capacity=0)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.layer(tokens)[0]


def _model(asked: dict[str, Any]) -> torch.nn.Module:
    layers = asked["layers"]
    model = torch.nn.Sequential(*(torch.nn.Linear(*layer) for layer in layers))
    if "experts" in asked:
        model.append(_Experts(layers[-1][1], asked["experts"], asked["world"]))
    return model


def _measured(config: dict[str, Any], asked: dict[str, Any]) -> dict[str, int]:
    dtype = torch.bfloat16 if config.get("bf16", {}).get("enabled") else torch.float32
    found: dict[str, int] = {}
    with _Storages() as storages:
        torch.set_default_dtype(dtype)
        model = _model(asked)
        torch.set_default_dtype(torch.float32)
        storages.taken()
        engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)
        found["init"] = storages.taken()
        for _ in range(_STEPS):
            for _ in range(config["gradient_accumulation_steps"]):
                loss = engine(torch.ones(1, asked["layers"][0][0], dtype=dtype)).float().square().mean()
                storages.taken()
                engine.backward(loss)
                found["backward"] = max(found.get("backward", 0), storages.taken())
                last = engine.is_gradient_accumulation_boundary()
                engine.step()
                if last:
                    found["step"] = max(found.get("step", 0), storages.taken())
        del loss
        found["held"] = storages.held()
    return found


def _rank(rank: int, asked: dict[str, Any], config: dict[str, Any], directory: str) -> None:
    world = asked["world"]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_SIZE=str(world))
    torch.set_num_threads(1)
    meeting = f"file://{directory}/meeting"
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, init_method=meeting, rank=rank, world_size=world)
    mine = _measured(config, asked)
    highest = torch.tensor(list(mine.values()))
    torch.distributed.all_reduce(highest, torch.distributed.ReduceOp.MAX)
    if rank == 0:
        os.write(_stdout, (json.dumps(dict(zip(mine, highest.tolist(), strict=True))) + "\n").encode())
    torch.distributed.destroy_process_group()


def _forked(rank: int, asked: dict[str, Any], config: dict[str, Any], directory: str) -> int:
    child = os.fork()
    if child == 0:
        try:
            _rank(rank, asked, config, directory)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def main() -> None:
    """Each configuration in processes of its own: an engine leaves tensors behind."""
    asked = json.load(sys.stdin)
    for config in asked["configs"]:
        with tempfile.TemporaryDirectory() as directory:
            children = [_forked(rank, asked, config, directory) for rank in range(asked["world"])]
            ended = [os.waitpid(child, 0)[1] for child in children]
        if any(ended):
            sys.exit(1)


main()
