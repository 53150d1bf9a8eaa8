"""Two ranks of DeepSpeed on gloo with the agent's hook on PYTHONPATH: argument 1 says which ranks have it.

Prints what the hook has measured and reported, beside what rank 0 has.
"""

# DeepSpeed is there only.
# pyright: basic, reportMissingImports=false

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import setuptools  # noqa: F401  brings distutils, which Python 3.13 has no more and older versions import

HOOK = "/operator/deepspeed_operator/agent/dso_hook.py"
STEPS, FIRST, LAST = 22, 5, 20
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 2,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": 2},
}


def rank(meeting: str) -> None:
    import deepspeed
    import torch

    vars(sys.modules["deepspeed.comm.torch"])["build_shm_op"] = lambda: None  # it would be compiled first
    number = int(os.environ["RANK"])
    deepspeed.init_distributed(
        "gloo", auto_mpi_discovery=False, init_method=f"file://{meeting}", rank=number, world_size=2
    )
    hooked = hasattr(deepspeed.initialize, "__wrapped__")
    model = torch.nn.Linear(512, 512)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    times = []
    for _ in range(STEPS):
        for _ in range(engine.gradient_accumulation_steps()):
            engine.backward(engine(torch.ones(1, 512)).square().mean())
            engine.step()
        times.append(time.perf_counter())
    found = {
        "own": (times[LAST - 1] - times[FIRST - 1]) / (LAST - FIRST),
        "steps": engine.global_steps,
        "wrapped": "_take_model_step" in engine.__dict__,
        "hooked": [hooked, hasattr(deepspeed.initialize, "__wrapped__")],
        "path": [entry for entry in sys.path if entry.endswith("/hook")],
    }
    torch.distributed.barrier()
    if number == 0:
        Path(meeting + ".told").write_text(json.dumps(found))


def main() -> None:
    hooked = [int(each) for each in sys.argv[1]]
    with tempfile.TemporaryDirectory() as directory:
        hook = Path(directory) / "hook"
        hook.mkdir()
        shutil.copy(HOOK, hook / "sitecustomize.py")
        (hook / "measure").touch()
        processes = []
        for number in range(2):
            environment = {**os.environ, "RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": "2"}
            if number in hooked:
                environment["PYTHONPATH"] += f":{hook}"
            command = [sys.executable, "-u", __file__, "rank", f"{directory}/meeting"]
            processes.append(subprocess.Popen(command, env=environment, stdout=sys.stderr))
        codes = [process.wait() for process in processes]
        result, reports = hook / "measured.json", hook / "reports.jsonl"
        told = Path(f"{directory}/meeting.told")
        print(
            json.dumps(
                {
                    "codes": codes,
                    "measured": json.loads(result.read_text()) if result.exists() else None,
                    "reports": [json.loads(line) for line in reports.read_text().splitlines()],
                    "rank0": json.loads(told.read_text()) if told.exists() else None,
                }
            )
        )


if sys.argv[1] == "rank":
    rank(sys.argv[2])
else:
    main()
