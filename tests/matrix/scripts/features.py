"""Trains, or fails to, one row of the matrix after the other in the same two processes, and prints what came of each.

Arguments: the file of the rows, and the configuration's file for a row that has none of its own.
"""

# torch and DeepSpeed are in the pod only.
# pyright: basic, reportMissingImports=false

import copy
import gc
import json
import pathlib
import sys
import time

import deepspeed
import models
import torch
from deepspeed import comm
from deepspeed.runtime.config import DeepSpeedConfig
from torch.nn import functional

STEPS = 6


def samples(engine, *, length=None, shared=False):
    """The same samples at every step, so that the loss must fall; each rank's own, or the same for all ranks."""
    generator = torch.Generator().manual_seed(1 if shared else comm.get_rank())
    shape = [engine.train_micro_batch_size_per_gpu(), *([length] if length else []), models.WIDTH]
    inputs = torch.randn(shape, generator=generator)
    return inputs, inputs.square().mean(dim=-1, keepdim=True)


def mean(value):
    total = torch.as_tensor(float(value))
    comm.all_reduce(total)
    return float(total) / comm.get_world_size()


def fit(engine, batch):
    """The loss of all ranks at each step, and the learning rate of each step."""
    dtype = next(engine.module.parameters()).dtype
    inputs, targets = (part.to(dtype) for part in batch)
    losses, rates = [], []
    for _ in range(STEPS):
        rates.append(f"{engine.get_lr()[0]:.3g}")
        for _ in range(engine.gradient_accumulation_steps()):
            loss = functional.mse_loss(engine(inputs), targets)
            engine.backward(loss)
            engine.step()
        losses.append(mean(loss))
    return losses, rates


def facts(engine):
    offloads = {"optimizer": engine.zero_offload_optimizer(), "parameters": engine.zero_offload_param()}
    return {
        "stage": engine.zero_optimization_stage(),
        "dtype": str(next(engine.module.parameters()).dtype).removeprefix("torch."),
        "accumulation": engine.gradient_accumulation_steps(),
        "batch": engine.train_batch_size(),
        "steps": engine.global_steps,
        "optimizer": type(engine.basic_optimizer).__name__,
        "wrapper": type(engine.optimizer).__name__,
        "offloaded": [name for name, section in offloads.items() if section is not None],
    }


def initialize(config, model, **more):
    more.setdefault("model_parameters", model.parameters())
    engine, *_ = deepspeed.initialize(model=model, config=config, **more)
    return engine


def plain(config, model=None, **more):
    engine = initialize(config, model or models.Perceptron(), **more)
    before = [parameter.detach().clone() for parameter in engine.module.parameters()]
    losses, rates = fit(engine, samples(engine))
    found = {**facts(engine), "rates": rates}
    if engine.zero_optimization_stage() < 3:
        moves = [
            (after.detach() - was).flatten() for after, was in zip(engine.module.parameters(), before, strict=True)
        ]
        found["moved"] = f"{torch.cat(moves).norm():.3g}"
    return engine, losses, found


def recomputed(config):
    deepspeed.checkpointing.configure(None, deepspeed_config=config)
    engine, losses, found = plain(config, models.Recomputing())
    return engine, losses, {**found, "forwards": engine.module.forwards}


def logged(config):
    engine, losses, found = plain(config)
    return engine, losses, {**found, "operations": sorted(comm.comm.comms_logger.comms_dict)}


def monitored(config):
    engine, losses, found = plain(config)
    directory = pathlib.Path(config["csv_monitor"]["output_path"], config["csv_monitor"]["job_name"])
    return engine, losses, {**found, "files": sorted(path.name for path in directory.glob("*.csv"))}


def pipelined(config):
    module = deepspeed.PipelineModule(models.stages(), num_stages=2, loss_fn=functional.mse_loss)
    engine = initialize(config, module)
    batch = samples(engine, shared=True)
    losses = [float(engine.train_batch(iter(lambda: batch, None))) for _ in range(STEPS)]
    return engine, losses, {**facts(engine), "layers": len(module.forward_funcs)}


def tensor_parallel(config):
    engine = initialize(config, models.Perceptron())
    losses, _ = fit(engine, samples(engine, shared=True))
    return engine, losses, {**facts(engine), "hidden": engine.module.up.weight.shape[0]}


def sequence_parallel(config):
    model = models.Attention()
    engine = initialize(config, model)
    losses, _ = fit(engine, samples(engine, length=4))
    return engine, losses, {**facts(engine), "sequence": model.seen}


def experts(config, ranks=2):
    model = models.Experts(ranks)
    engine = initialize(config, model, model_parameters=models.expert_parameters(model))
    losses, _ = fit(engine, samples(engine))
    return engine, losses, {**facts(engine), "experts": model.moe.num_local_experts}


def three_experts(config):
    return experts(config, 3)


def client_optimizer(config):
    model = models.Perceptron()
    return plain(config, model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.01))


FUNCTIONS = (
    plain,
    recomputed,
    logged,
    monitored,
    pipelined,
    tensor_parallel,
    sequence_parallel,
    experts,
    three_experts,
    client_optimizer,
)
SCRIPTS = {function.__name__.replace("_", "-"): function for function in FUNCTIONS}


def readable(config):
    """Whether DeepSpeed's reading alone accepts it, before there is an engine."""
    try:
        DeepSpeedConfig(copy.deepcopy(config))
    except Exception:
        return False
    return True


def outcome(row, config):
    torch.manual_seed(0)
    try:
        engine, losses, found = SCRIPTS[row["script"]](copy.deepcopy(config))
    except Exception as error:  # whatever it is, it is what the row asks for
        return {"error": f"{type(error).__name__}: {error}"[:2000], "readable": readable(config)}
    engine.destroy()
    return {"losses": losses, "facts": found}


def main():
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    for row in json.loads(pathlib.Path(sys.argv[1]).read_text()):
        started = time.monotonic()
        here = outcome(row, row["config"] or sys.argv[2])
        gc.collect()
        ranks = [None] * comm.get_world_size()
        torch.distributed.all_gather_object(ranks, here)
        if comm.get_rank() == 0:
            result = {"name": row["name"], "seconds": time.monotonic() - started, "ranks": ranks}
            print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
