"""Two ranks that stop at a point of a save, at stages 1, 2 and 3, and then go on; what the agent says and mends.

Prints for each stage and point the tag in `latest`, what the agent finds that it lacks, what `latest` names after the
agent has mended it, and the step that DeepSpeed then goes on from. The last load is of a torn tag that nobody mended.
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
RANKS = 2
# At each point: how many files a rank writes to their end, and whether it has begun another one; -1: all.
POINTS = {
    "nothing is written": ((0, False), (0, False)),
    "within rank 0's first file": ((0, True), (0, False)),
    "rank 1 has still to write": ((-1, False), (0, False)),
    "within rank 1's last file": ((-1, False), (-2, True)),
    "all is written": ((-1, False), (-1, False)),
}
FILES = {1: (2, 1), 2: (2, 1), 3: (2, 2)}  # by stage, of the two ranks


class KilledError(Exception):
    """The rank ends here."""


def spawn() -> None:
    with tempfile.TemporaryDirectory() as directory:
        errors = run_ranks(__file__, [directory], RANKS, directory)
        unmended = [path.read_text() for path in sorted(Path(directory).glob("unmended-*"))]
        result = Path(directory, "found.json")
        found = json.loads(result.read_text()) if result.exists() else None
    print(json.dumps({"found": found, "unmended": unmended, "errors": "" if found else errors}))


def engine_at(stage: int):
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},  # no collective after the files
    }
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def step(engine) -> None:
    engine.backward(engine(torch.randn(2, 64)).square().mean())
    engine.step()


def save_until(engine, root: str, point: str, stage: int) -> None:
    """Save as far as this rank comes until it, or its peer, is killed at the point."""
    most, begins_another = POINTS[point][RANK]
    most = FILES[stage][RANK] + 1 + most if most < 0 else most
    saver, runtime = engine.checkpoint_engine, sys.modules["deepspeed.runtime.engine"]
    save, barrier, written = saver.save, runtime.dist.barrier, []

    def limited(state_dict, path):
        if len(written) == most and not begins_another:
            raise KilledError
        save(state_dict, path)
        written.append(path)
        if len(written) > most:
            os.truncate(path, Path(path).stat().st_size // 2)
            raise KilledError

    saver.save, runtime.dist.barrier = limited, lambda *_, **__: None
    try:
        engine.save_checkpoint(root)
    except KilledError:
        pass
    finally:
        saver.save, runtime.dist.barrier = save, barrier
    torch.distributed.barrier()


def mended(root: str) -> list[str]:
    said: list[str] = []
    given = {"checkpoint_path": root, "checkpoint_declared": True, "repair_latest": True, "run_began": 0}
    agent = dso_checkpoint.Checkpoints(
        SimpleNamespace(nodes=RANKS, slots=1, config=None, conversion_seconds=0, **given), said.append
    )
    agent.start()
    agent.settle()
    while not agent.idle:
        time.sleep(0.01)
    return said


def latest(root: str) -> str:
    return Path(root, "latest").read_text()


def at_point(directory: str, stage: int, point: str) -> dict:
    root = f"{directory}/{stage}-{list(POINTS).index(point)}"
    engine = engine_at(stage)
    step(engine)
    engine.save_checkpoint(root)
    step(engine)
    save_until(engine, root, point, stage)
    found = {"stage": stage, "point": point}
    if RANK == 0:
        found["named"] = latest(root)
        found["missing"] = dso_checkpoint.checkpoint_at(f"{root}/{found['named']}", RANKS).missing
        found["said"] = mended(root)
        found["mended"] = latest(root)
    torch.distributed.barrier()
    again = engine_at(stage)
    path, _ = again.load_checkpoint(root)
    step(again)
    return {**found, "path": path and Path(path).parent.name, "steps": again.global_steps}


def unmended(directory: str) -> str:
    """Why DeepSpeed cannot go on where nobody mends `latest`; the peer of the rank that fails is not told."""
    root, engine = f"{directory}/torn", engine_at(2)
    step(engine)
    engine.save_checkpoint(root)
    step(engine)
    save_until(engine, root, "rank 1 has still to write", 2)
    try:
        engine_at(2).load_checkpoint(root)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "loaded"


def main(directory: str) -> None:
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, timeout=datetime.timedelta(seconds=300))
    found = [at_point(directory, stage, point) for stage in FILES for point in POINTS]
    Path(directory, f"unmended-{RANK}").write_text(unmended(directory))
    if RANK == 0:
        Path(directory, "found.json").write_text(json.dumps(found))
    os._exit(0)


if "RANK" not in os.environ:
    spawn()
else:
    import setuptools  # noqa: F401, I001  brings distutils, which Python 3.13 has no more and older versions import
    import deepspeed
    import dso_checkpoint
    import torch

    RANK = int(os.environ["RANK"])
    vars(sys.modules["deepspeed.comm.torch"])["build_shm_op"] = lambda: None  # it would be compiled first
    main(sys.argv[1])
