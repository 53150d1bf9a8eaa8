"""Two ranks of DeepSpeed on gloo with the agent's hook on PYTHONPATH: argument 1 is the ZeRO stage, and each of the
others a tag for each rank to load, such as 1,2: global_step1 and global_step2; 0 is one that is not there.

Prints for each of those what the agent concludes, and the sum of the parameters of each rank after its next step.
"""

# DeepSpeed and the agent are there only.
# pyright: basic, reportMissingImports=false

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import setuptools  # noqa: F401  brings distutils, which Python 3.13 has no more and older versions import
from gloo_ranks import run_ranks

AGENT = "/operator/deepspeed_operator/agent"


def rank(stage: int, tags: str, told: str) -> None:
    import deepspeed
    import torch

    vars(sys.modules["deepspeed.comm.torch"])["build_shm_op"] = lambda: None  # it would be compiled first
    number, root = int(os.environ["RANK"]), Path(told).parent
    tag = tags.split(",")[number]
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    torch.manual_seed(1)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_force_ds_cpu_optimizer": False,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
    }
    model = torch.nn.Linear(64, 64)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    if tag:
        volume = root if tag != "0" else f"{root}/empty"
        engine.load_checkpoint(f"{volume}/saved", f"global_step{tag}" if tag != "0" else None)
    for _ in range(1 if tag else 2):
        engine.backward(engine(torch.ones(1, 64)).square().mean())
        engine.step()
        if not tag:
            engine.save_checkpoint(f"{root}/saved")
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        total = float(model.weight.double().sum())
    torch.distributed.barrier()
    Path(f"{told}.{number}").write_text(json.dumps(total))
    os._exit(0)  # gloo's threads may end the process otherwise, as its peer is gone


def run(stage: str, tags: str, directory: str, hook: Path) -> list[float]:
    told = [Path(f"{directory}/told-{hook.name}.{number}") for number in range(2)]
    path = f"{os.environ['PYTHONPATH']}:{hook}"
    errors = run_ranks(__file__, ["rank", stage, tags, str(told[0].with_suffix(""))], 2, directory, PYTHONPATH=path)
    assert all(each.exists() for each in told), errors
    return [json.loads(each.read_text()) for each in told]


def main() -> None:
    sys.path.insert(1, AGENT)
    import dso_hookdir
    import dso_starts

    found = []
    with tempfile.TemporaryDirectory() as directory:
        run(sys.argv[1], ",", directory, Path(directory, "none"))
        for number, each in enumerate(sys.argv[2:]):
            hook = Path(directory, f"hook{number}")
            hook.mkdir()
            shutil.copy(f"{AGENT}/dso_hook.py", hook / "sitecustomize.py")
            shutil.copy(f"{AGENT}/dso_progresshook.py", hook)
            totals = run(sys.argv[1], each, directory, hook)
            starts = dso_starts.Starts()
            reports = list(dso_hookdir.parsed((hook / "reports.jsonl").read_bytes()))
            starts.take({"starts": dso_starts.starts_of(reports)}, "pod 0")
            found.append({"words": starts.words, "wrong": starts.wrong, "totals": totals})
    print(json.dumps(found))


if sys.argv[1] == "rank":
    rank(int(sys.argv[2]), *sys.argv[3:])
else:
    main()
