"""What DeepSpeed passes to torch.distributed in a step, on gloo: {world, cases} → bytes by "collective ranks".

A case is {layers, frozen, tied, blocks, reentrant, experts, config}: linear layers, of which some are not trained, and
the last may be the first; those between the numbers of a block are computed again in the backward pass. After them come
layers of experts.
"""

# DeepSpeed is there only.
# pyright: basic, reportMissingImports=false

import gc
import json
import os
import sys
import tempfile
import traceback
from collections import Counter
from functools import partial, wraps
from typing import Any

import setuptools  # noqa: F401  brings distutils, which Python 3.13 has no more and older versions import

# DeepSpeed prints on stdout; that is where the answer goes.
_stdout = os.dup(1)
os.dup2(2, 1)

import beforehand  # noqa: E402
import deepspeed  # noqa: E402
import torch  # noqa: E402
import torch.distributed  # noqa: E402
import torch.utils.checkpoint  # noqa: E402
from deepspeed.moe.layer import MoE  # noqa: E402
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer  # noqa: E402

beforehand.prepare_cpu()

# Half precision is for GPUs only, it says; to be counted, the CPU does it well enough.
_cpu = type(deepspeed.accelerator.get_accelerator())
_cpu.is_fp16_supported = lambda _: True
_cpu.supported_dtypes = lambda _: [torch.float, torch.bfloat16, torch.float16]
# The norms of experts are made of plain numbers, which GPUs' type takes.
_cpu.FloatTensor = property(lambda _: partial(torch.tensor, dtype=torch.float))

# Below it are flags, norms and persistent parameters, whose cost is their number and not their size.
_SMALLEST = 64 * 1024
# Collective → index of the tensor that is as large as the group's whole data.
_COLLECTIVES = {
    "all_reduce": 0,
    "reduce": 0,
    "broadcast": 0,
    "all_gather_into_tensor": 0,
    "reduce_scatter_tensor": 1,
    "all_to_all_single": 0,
}
_SEED = 7
# Kept until the process ends: to take engines apart takes longer than to train them.
_engines: list[Any] = []


def _counted(counts: Counter[str]) -> None:
    for name, whole in _COLLECTIVES.items():
        original = getattr(torch.distributed, name)

        @wraps(original)
        def wrapper(
            *args: Any, _name: str = name, _whole: int = whole, _original: Any = original, **kwargs: Any
        ) -> Any:
            tensor = (
                args[_whole] if len(args) > _whole else next(each for each in kwargs.values() if torch.is_tensor(each))
            )
            size = tensor.numel() * tensor.element_size()
            if size > _SMALLEST:
                counts[f"{_name} {torch.distributed.get_world_size(kwargs.get('group'))}"] += size
            return _original(*args, **kwargs)

        setattr(torch.distributed, name, wrapper)


class _Experts(torch.nn.Module):
    def __init__(self, width: int, asked: dict[str, Any]) -> None:
        super().__init__()
        expert = torch.nn.Sequential(torch.nn.Linear(width, asked["inner"]), torch.nn.Linear(asked["inner"], width))
        sizes = {"num_experts": asked["count"], "ep_size": asked["ranks"], "k": asked["chosen"]}
        self.layer = MoE(width, expert, capacity_factor=asked["capacity"], **sizes)
        self.again = asked["again"]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if self.again:
            return torch.utils.checkpoint.checkpoint(self.layer, tokens, use_reentrant=False)[0]
        return self.layer(tokens)[0]


class _Block(torch.nn.Sequential):
    reentrant = False

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(super().forward, tokens, use_reentrant=self.reentrant)


def _step(engine: Any, size: tuple[int, int], accumulation: int, dtype: torch.dtype) -> None:
    for _ in range(accumulation):
        loss = engine(torch.ones(*size, dtype=dtype)).float().square().mean()
        engine.backward(loss)
        engine.step()


def _model(case: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(_SEED)
    model = torch.nn.Sequential(*(torch.nn.Linear(*layer) for layer in case["layers"]))
    for index in case["frozen"]:
        model[index].requires_grad_(False)
    if case["tied"]:
        model[-1].weight = model[0].weight
    for begin, end in reversed(case["blocks"]):
        block = _Block(*model[begin:end])
        block.reentrant = case["reentrant"]
        model = torch.nn.Sequential(*model[:begin], block, *model[end:])
    if case["experts"]:
        for _ in range(case["experts"]["layers"]):
            model.append(_Experts(case["layers"][-1][1], case["experts"]))
    return model


def _trained(model: torch.nn.Module, with_experts: bool) -> list[Any]:
    parameters = [each for each in model.parameters() if each.requires_grad]
    if not with_experts:
        return parameters
    return split_params_into_different_moe_groups_for_optimizer({"params": parameters, "name": "all"})


def _traffic(case: dict[str, Any], counts: Counter[str]) -> dict[str, int]:
    config, experts = case["config"], case["experts"]
    size = (experts["tokens"] if experts else 1, case["layers"][0][0])
    model = _model(case)
    optimizer = torch.optim.AdamW(_trained(model, bool(experts)), lr=1e-4)
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    dtype = next((kind for name, kind in kinds.items() if config.get(name, {}).get("enabled")), torch.float32)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    accumulation = config["gradient_accumulation_steps"]
    # Stage 3 records the order of modules in the first two micro steps.
    for _ in range(1 if config["zero_optimization"]["stage"] < 3 else 2 if accumulation > 1 else 3):
        counts.clear()
        _step(engine, size, accumulation, dtype)
    _engines.append(engine)
    return dict(counts)


def _rank(rank: int, world: int, meeting: str, asked: dict[str, Any]) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_SIZE=str(world))
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    _counted(counts)
    deepspeed.init_distributed(
        "gloo", auto_mpi_discovery=False, init_method=f"file://{meeting}", rank=rank, world_size=world
    )
    answers = [_traffic(case, counts) for case in asked["cases"]]
    if rank == 0:
        os.write(_stdout, json.dumps(answers).encode())
    torch.distributed.destroy_process_group()


def main() -> None:
    asked = json.load(sys.stdin)
    # DeepSpeed collects garbage at each of its reports; here that is most of the time, and nothing runs out.
    gc.collect = lambda *_: 0
    with tempfile.TemporaryDirectory() as directory:
        children = []
        for rank in range(asked["world"]):
            child = os.fork()
            if child == 0:
                try:
                    _rank(rank, asked["world"], f"{directory}/meeting", asked)
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            children.append(child)
        failed = [os.waitpid(child, 0)[1] for child in children]
    sys.exit(any(failed))


main()
