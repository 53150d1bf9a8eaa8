"""Trains a step or two of a model whose gradients are known, and prints what came of it: one experiment an argument.

A model of one matrix W and the loss sum(W·x) has the gradient x, whatever W is; a micro step of its own x shows in the
weights whether it counted, and how much.
"""

# DeepSpeed is there only.
# pyright: basic, reportMissingImports=false

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import setuptools  # noqa: F401  brings distutils, which Python 3.13 has no more and older versions import

# DeepSpeed prints on stdout; that is where the answers go.
_stdout = os.dup(1)
os.dup2(2, 1)
os.environ["TORCHDYNAMO_DISABLE"] = "1"  # Muon's own steps would be compiled

import beforehand  # noqa: E402
import deepspeed  # noqa: E402
import torch  # noqa: E402
from deepspeed.ops.adam import FusedAdam  # noqa: E402

beforehand.prepare_cpu()
# Half precision is for GPUs only, it says; the CPU does it well enough.
_cpu = type(deepspeed.accelerator.get_accelerator())
_cpu.is_fp16_supported = lambda _: True
_cpu.supported_dtypes = lambda _: [torch.float, torch.bfloat16, torch.float16]

_SIZE = 4
_SGD = {"type": "SGD", "params": {"lr": 1.0}}
_PLAIN = {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, "gradient_clipping": 0.0}
_OFFLOAD = {"offload_optimizer": {"device": "cpu"}}
_BF16: dict[str, Any] = {"bf16": {"enabled": True}}
_FP32_SUMS: dict[str, Any] = {**_BF16, "data_types": {"grad_accum_dtype": "fp32"}}
Vector = list[float]


class _Plain(FusedAdam):
    """What DeepSpeed takes for its fused Adam, with a plain step: its own kernel would be compiled."""

    def __init__(self, parameters: Any) -> None:
        torch.optim.Optimizer.__init__(self, parameters, {"lr": 1.0})

    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data -= parameter.grad


def _row() -> torch.nn.Module:
    model = torch.nn.Linear(_SIZE, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    return model


def _engine(model: torch.nn.Module, steps: int = 1, client: Any = None, **config: Any) -> Any:
    sizes = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": steps}
    given = {**_PLAIN, **sizes, **({} if client else {"optimizer": _SGD}), **config}
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=list(model.parameters()), config=given, optimizer=client
    )
    return engine


def _micro(engine: Any, data: torch.Tensor, **how: Any) -> None:
    dtype = next(engine.module.parameters()).dtype
    engine.backward(engine(data.to(dtype)).float().sum() * how.pop("factor", 1.0), **how)
    engine.step()


def _weights(engine: Any) -> Vector:
    parameter = next(engine.module.parameters())
    with deepspeed.zero.GatheredParameters([parameter], enabled=hasattr(parameter, "ds_id")):
        return [round(value, 4) for value in parameter.detach().float().flatten().tolist()]


def _counted(rank: int, steps: int = _SIZE, **config: Any) -> Vector:
    """Each micro step has an axis of its own: what it has added to the weights, to within their precision."""
    engine = _engine(_row(), steps, **config)
    for axis in torch.eye(_SIZE)[:steps]:
        _micro(engine, axis[None] * (rank + 1))
    return _weights(engine)


def _after_each(engine: Any, data: torch.Tensor) -> list[Vector]:
    found = []
    for each in data:
        _micro(engine, each[None])
        found.append(_weights(engine))
    return found


def never_steps(_: int) -> Vector:
    model = _row()
    engine = _engine(model, client=_Plain(model.parameters()), fp16={"enabled": True, "loss_scale": 1})
    _micro(engine, torch.ones(1, _SIZE))
    return _weights(engine)


def unscaled_autocast(_: int) -> bool:
    """Whether a gradient too small for fp16 arrives."""
    model = torch.nn.Sequential(torch.nn.Linear(_SIZE, _SIZE, bias=False), torch.nn.Linear(_SIZE, 1, bias=False))
    engine = _engine(model, torch_autocast={"enabled": True, "dtype": "float16"})
    for parameter in model.parameters():
        torch.nn.init.ones_(parameter)
    before = _weights(engine)
    for group in engine.optimizer.param_groups:
        group["lr"] = 1e6
    _micro(engine, torch.ones(1, _SIZE), factor=1e-8)
    return _weights(engine) != before


def overflow_not_shared(_: int) -> list[int]:
    """Of each rank, whether it would skip a step in which the part of rank 0 overflows."""
    fp16 = {"enabled": True, "initial_scale_power": 15, "hysteresis": 1}
    engine = _engine(_row(), fp16=fp16, zero_optimization={"stage": 1})
    engine.backward(engine(torch.tensor([[1000.0, 0, 0, 1e-3]], dtype=torch.half)).float().sum())
    # The step itself may hang, since only one of them skips it.
    optimizer = engine.optimizer
    mine = torch.tensor([int(optimizer.has_overflow(optimizer.partition_gradients))])
    both = [torch.zeros_like(mine) for _ in range(2)]
    torch.distributed.all_gather(both, mine)
    return [int(each) for each in both]


def stale_parameters(rank: int) -> float:
    """The first layer's gradient once a checkpoint has brought back the second one's weights: 1 from them, else 3.

    The weights are changed in the model only; the checkpoint is made from the optimizer's own, which are not.
    """
    layers = [torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)]
    for layer in layers:
        torch.nn.init.eye_(layer.weight)
    zero = {"stage": 3, "zero_hpz_partition_size": 2, "stage3_param_persistence_threshold": 0}
    engine = _engine(torch.nn.Sequential(*layers), zero_optimization=zero)
    directory = os.environ["SHARED"]
    _micro(engine, torch.zeros(1, 2))
    with deepspeed.zero.GatheredParameters(list(engine.module[1].parameters()), modifier_rank=0):
        if rank == 0:
            engine.module[1].weight.data.mul_(3)
    engine.save_checkpoint(directory, tag="a")
    engine.load_checkpoint(directory, tag="a")
    _micro(engine, torch.ones(1, 2))
    return -_weights(engine)[1]


def _rates(scheduler: dict[str, Any], steps: int, rate: float = 1.0) -> list[Any]:
    optimizer = {"type": "SGD", "params": {"lr": rate}}
    engine = _engine(_row(), optimizer=optimizer, scheduler=scheduler)
    found: list[Any] = []
    try:
        for _ in range(steps):
            found.append(round(engine.optimizer.param_groups[0]["lr"], 4))
            _micro(engine, torch.zeros(1, _SIZE))
    except ZeroDivisionError:
        found.append("ZeroDivisionError")
    return found


def first_learning_rate(_: int) -> list[Any]:
    params = {"warmup_min_lr": 0.0, "warmup_max_lr": 0.5, "warmup_num_steps": 4, "warmup_type": "linear"}
    return _rates({"type": "WarmupLR", "params": params}, 2)


def stairs_ignored(_: int) -> list[Any]:
    params = {"cycle_min_lr": 0.0, "cycle_max_lr": 1.0, "cycle_first_step_size": 4, "cycle_first_stair_count": 2}
    return _rates({"type": "OneCycle", "params": {**params, "cycle_momentum": False}}, 5)


def _throughout(name: str, **params: float) -> list[Any]:
    given = {"total_num_steps": 4, "warmup_num_steps": 4, "warmup_type": "linear", **params}
    return _rates({"type": name, "params": given}, 7)


def decay_never_begins(_: int) -> list[Any]:
    return _throughout("WarmupDecayLR", warmup_max_lr=1.0)


def cosine_never_begins(_: int) -> list[Any]:
    return _throughout("WarmupCosineLR", cos_min_ratio=0.01)


def cosine_swings(_: int) -> list[Any]:
    return _throughout("WarmupCosineLR", cos_min_ratio=0.01, total_num_steps=2)


def all_reduce_fetch(_: int) -> bool:
    """Whether a forward pass is finite where memory that nobody wrote is not a number."""
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Linear(3, 3)  # two ranks do not divide its 9 weights
    zero = {"stage": 3, "stage3_use_all_reduce_for_fetch_params": True, "stage3_param_persistence_threshold": 0}
    engine = _engine(model, zero_optimization=zero)
    return bool(engine(torch.ones(1, 3)).isfinite().all())


def _muon(rank: int, data: list[torch.Tensor], **config: Any) -> list[float] | str:
    """Singular values of the update of a matrix with these micro steps' gradients: of Muon, all are near each other."""
    model = torch.nn.Linear(_SIZE, _SIZE, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = {"type": "Muon", "params": {"lr": 1.0, "momentum": 0.0, "weight_decay": 0.0}}
    try:
        engine = _engine(model, len(data), optimizer=optimizer, **config)
    except ValueError as error:  # newer versions refuse some of them
        return f"refused: {error}"[:60]
    for each in data:
        output = engine(torch.eye(_SIZE, dtype=next(model.parameters()).dtype))
        engine.backward((output.float() * each.T).sum())
        engine.step()
    values = torch.linalg.svdvals(torch.tensor(_weights(engine)).view(_SIZE, _SIZE))
    return [round(value, 2) for value in values.tolist()]


_SKEWED = torch.diag(torch.tensor([1.0, 0.5, 0.25, 0.125]))


def _zero(stage: int, **keys: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, "reduce_scatter": False, **keys}}


def _groups(name: str | None, steps: int, **scheduler: Any) -> list[float]:
    """The rates of Muon's and of Adam's parameters after these steps."""
    model = torch.nn.Linear(_SIZE, _SIZE)
    params = {"lr": 0.1, "muon_lr": 0.2, "adam_lr": 0.3}
    optimizer = {"type": "Muon", "params": params}
    scheduled = {"scheduler": {"type": name, "params": scheduler}} if name else {}
    engine = _engine(model, optimizer=optimizer, **scheduled, **_zero(1))
    for _ in range(steps):
        _micro(engine, torch.ones(1, _SIZE))
    return [round(group["lr"], 4) for group in engine.optimizer.param_groups]


def gradients_divided_twice(_: int) -> Vector:
    engine = _engine(_row(), _SIZE)
    for axis in torch.eye(_SIZE):
        _micro(engine, axis[None], factor=1 / _SIZE, scale_wrt_gas=False)
    return _weights(engine)


# Name → the ranks that it needs, and what is done.
EXPERIMENTS: dict[str, tuple[int, Callable[[int], Any]]] = {
    "first-learning-rate": (1, first_learning_rate),
    "stale-parameters": (2, stale_parameters),
    "stairs-ignored": (1, stairs_ignored),
    "all-reduce-fetch": (2, all_reduce_fetch),
    "decay-never-begins": (1, decay_never_begins),
    "cosine-never-begins": (1, cosine_never_begins),
    "cosine-swings": (1, cosine_swings),
    "gradients-lost": (1, lambda rank: _counted(rank, zero_optimization={"stage": 2, **_OFFLOAD})),
    "gradients-overwritten": (1, lambda rank: _counted(rank, zero_optimization={"stage": 2})),
    "gradients-not-cleared": (1, lambda _: _after_each(_engine(_row(), **_BF16), torch.eye(_SIZE)[:2])),
    "overflow-not-shared": (2, overflow_not_shared),
    "unscaled-autocast": (1, unscaled_autocast),
    "never-steps": (1, never_steps),
    "muon-stage-0": (1, lambda rank: _muon(rank, [_SKEWED], **_BF16)),
    "muon-fp32-sums": (1, lambda rank: _muon(rank, [_SKEWED], **_FP32_SUMS, **_zero(1))),
    "muon-offloaded": (1, lambda rank: _muon(rank, [_SKEWED], **_BF16, **_zero(2, **_OFFLOAD))),
    "muon-scattered": (2, lambda rank: _muon(rank, [_SKEWED + 0.5], **_BF16, **_zero(2, reduce_scatter=True))),
    "muon-each-micro-step": (1, lambda rank: _muon(rank, [_SKEWED, -_SKEWED / 2], **_BF16, **_zero(3))),
    "muon-first-learning-rate": (
        1,
        lambda _: _groups("WarmupCosineLR", 0, total_num_steps=8, warmup_num_steps=4),
    ),
    "muon-rates-ignored": (1, lambda _: _groups(None, 0)),
    "one-learning-rate": (1, lambda _: _groups("WarmupLR", 4, warmup_num_steps=2)),
    "learning-rates-overwritten": (1, lambda _: _groups("WarmupLR", 4, warmup_num_steps=2, warmup_max_lr=0.9)),
    "gradients-divided-twice": (1, gradients_divided_twice),
    "last-gradient-not-reduced": (2, lambda rank: _counted(rank, 2, **_FP32_SUMS, **_zero(1))),
}


def _rank(rank: int, name: str, directory: str) -> None:
    world, experiment = EXPERIMENTS[name]
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_SIZE": world}
    os.environ.update({key: str(value) for key, value in ranks.items()}, SHARED=directory)
    torch.set_num_threads(1)
    meeting = f"file://{directory}/meeting"
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, init_method=meeting, rank=rank, world_size=world)
    try:
        found = experiment(rank)
    except Exception as error:
        traceback.print_exc()
        found = f"{type(error).__name__}: {error}"
    if rank == 0:
        os.write(_stdout, f"{json.dumps([name, found])}\n".encode())
    os._exit(0)


def main() -> None:
    """Each experiment in processes of its own: an engine leaves its groups behind."""
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as directory:
            children = []
            for rank in range(EXPERIMENTS[name][0]):
                child = os.fork()
                if child == 0:
                    _rank(rank, name, directory)
                children.append(child)
            for child in children:
                os.waitpid(child, 0)


main()
