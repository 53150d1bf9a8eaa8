"""Two ranks save, one goes on from it, and two go on from that, at stages 1, 2 and 3: what they lose beside two ranks.

Each time rank 0's agent makes what was saved universal. Prints for each stage the losses of the run, those of two ranks
that nothing has disturbed, and from what each part went on. The configuration is that of an elastic run: the global
batch stays, so that one rank makes twice as many micro steps.
"""

# DeepSpeed and the agent are there only.
# pyright: basic, reportMissingImports=false

import datetime
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

from gloo_ranks import run_ranks

sys.path.insert(1, "/operator/deepspeed_operator/agent")
STAGES = (1, 2, 3)
BATCH, MICRO = 8, 2
PARTS = ((2, 0, 3), (1, 3, 6), (2, 6, 9))  # ranks, and their first and last step
WHOLE = (2, 0, 9)


def spawn() -> None:
    with tempfile.TemporaryDirectory() as directory:
        found = {"whole": part(directory, "whole", *WHOLE)}
        for number, (ranks, first, last) in enumerate(PARTS):
            for stage in STAGES if first else ():
                convert(f"{directory}/parts/{stage}", PARTS[number - 1][0])
            found[str(number)] = part(directory, "parts", ranks, first, last)
        print(json.dumps(found))


def part(directory: str, name: str, ranks: int, first: int, last: int) -> dict:
    result = Path(directory, f"{name}-{first}.json")
    errors = run_ranks(__file__, [f"{directory}/{name}", str(result), str(first), str(last)], ranks, directory)
    return json.loads(result.read_text()) if result.exists() else {"errors": errors}


def convert(root: str, ranks: int) -> None:
    """As rank 0's agent does it, whose main thread takes the end of each child."""
    import dso_universal
    from dso_checkpoint_files import newest_complete

    launch = SimpleNamespace(python=sys.executable, conversion_seconds=600, cause=lambda *words: {"signature": words})
    conversion = dso_universal.Conversion(
        launch, newest_complete(root, ranks), lambda said: print(said, file=sys.stderr)
    )

    def pause() -> bool:
        time.sleep(0.05)
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            conversion.reaped(pid, os.waitstatus_to_exitcode(status))
        return False

    conversion.wait(pause)


def engine_at(stage: int, universal: bool):
    config = {
        "train_batch_size": BATCH,
        "train_micro_batch_size_per_gpu": MICRO,
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 20}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "checkpoint": {"load_universal": universal},
    }
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def loss_of(engine, step: int) -> float:
    """One optimizer step over the global batch, of which each rank has the same share in every world."""
    given = torch.Generator().manual_seed(step)
    inputs, wanted = (torch.randn(BATCH, width, generator=given) for width in (16, 3))
    ranks, total = torch.distributed.get_world_size(), torch.zeros(())
    for micro in range(BATCH // MICRO // ranks):
        at = (micro * ranks + RANK) * MICRO
        loss = (engine(inputs[at : at + MICRO]) - wanted[at : at + MICRO]).square().mean()
        engine.backward(loss)
        engine.step()
        total += loss.detach()
    torch.distributed.all_reduce(total)
    return total.item() / (BATCH // MICRO)


def main(root: str, result: str, first: int, last: int) -> None:
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, timeout=datetime.timedelta(seconds=300))
    found = {}
    for stage in STAGES:
        engine = engine_at(stage, bool(first))
        path = engine.load_checkpoint(f"{root}/{stage}")[0] if first else None
        losses = [loss_of(engine, step) for step in range(first, last)]
        engine.save_checkpoint(f"{root}/{stage}")
        found[stage] = {"losses": losses, "from": path and Path(path).parent.name, "steps": engine.global_steps}
    if RANK == 0:
        Path(result).write_text(json.dumps(found))
    torch.distributed.barrier()
    os._exit(0)


if "RANK" not in os.environ:
    spawn()
else:
    import setuptools  # noqa: F401, I001  brings distutils, which Python 3.13 has no more and older versions import
    import deepspeed
    import torch

    RANK = int(os.environ["RANK"])
    vars(sys.modules["deepspeed.comm.torch"])["build_shm_op"] = lambda: None  # it would be compiled first
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
