"""A training script for launchers to start: a plain decoder under DeepSpeed, and how long its steps took.

It imports nothing slow, so that a run is little more than its steps. Rank 0 writes one JSON object into --report, and
each rank its variables beside that.
"""

# pyright: basic, reportMissingImports=false

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# A multicast group that a program leaves behind disables NVLink for everyone on a shared host.
_KEPT = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
_WARM_UP = 10
# Parts of a run that is not noisy, timed apart: one that is slow at first or now and then is told from a slow one.
_PARTS = 10
_BLOCKS = 16
# Of a block, those that may still belong to the one before.
_SETTLING = 3
# What a noisy rank starts beside itself: lines of 100 bytes, each written by itself, while standard input says 1.
# In another process, because printing costs its process time whoever reads the lines.
_WRITER = """
import os, select, sys, time
rate, line, on = int(sys.argv[1]), b"noise " + b"." * 93 + b"\\n", False
while True:
    if select.select([0], [], [], 0.01 if on else None)[0]:
        told = os.read(0, 1)
        if not told:
            break
        on, began, sent = told == b"1", time.monotonic(), 0
    while on and sent < (time.monotonic() - began) * rate:
        os.write(1, line)
        sent += 1
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config")
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=100, help="timed optimizer steps; of each block, with --noise")
    parser.add_argument(
        "--noise", type=int, default=0, help="lines a second that the last rank logs in each second block"
    )
    parser.add_argument("--tiny", action="store_true", help="a tiny model, for a dry run on CPUs")
    parser.add_argument("--local_rank", type=int, help="given by DeepSpeed's launcher")
    arguments = parser.parse_args()
    path = arguments.report.with_name(f"{arguments.report.name}.{os.environ['RANK']}")
    path.write_text(json.dumps(dict(os.environ)))
    step, wait, about = _trainer(arguments)
    for _ in range(_WARM_UP):
        step()
    took = _with_noise(arguments, step, wait) if arguments.noise else _in_parts(arguments.steps, step, wait)
    if about["rank"] == 0:
        arguments.report.write_text(json.dumps({**about, "steps": arguments.steps, **took}))


def _trainer(arguments: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    import torch  # noqa: PLC0415  after the variables are written, of which it and DeepSpeed set some
    from torch.nn import functional  # noqa: PLC0415

    cuda = torch.cuda.is_available()
    lost = [name for name, value in _KEPT.items() if os.environ.get(name) != value]
    if cuda and lost:
        raise SystemExit(f"{', '.join(lost)}: must be as in {_KEPT}")
    import deepspeed  # noqa: PLC0415
    import deepspeed.comm.torch  # noqa: PLC0415

    if cuda:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
        torch.set_num_threads(1)
        # Its own all-reduce between CPUs would be compiled first.
        vars(sys.modules["deepspeed.comm.torch"])["build_shm_op"] = lambda: None
    width, layers, length, micro, words = (32, 2, 16, 2, 100) if arguments.tiny else (1536, 12, 1024, 16, 32000)
    torch.manual_seed(7)
    with device:
        layer = torch.nn.TransformerEncoderLayer(
            width, width // 16 if arguments.tiny else 12, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        model = torch.nn.Sequential(
            torch.nn.Embedding(words, width),
            torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False),
            torch.nn.Linear(width, words),
        )
        tokens = torch.randint(0, words, (micro, length))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=arguments.config)

    def step() -> None:
        engine.backward(functional.cross_entropy(engine(tokens).flatten(0, 1).float(), tokens.flatten()))
        engine.step()

    about = {
        "rank": torch.distributed.get_rank(),
        "world": torch.distributed.get_world_size(),
        "samples": engine.train_batch_size(),
        "parameters": sum(each.numel() for each in model.parameters()),
        "gpu": torch.cuda.get_device_name() if cuda else os.uname().machine,
        "torch": torch.__version__,
        "deepspeed": deepspeed.__version__,
    }
    return step, torch.cuda.synchronize if cuda else lambda: None, about


def _in_parts(steps: int, step: Any, wait: Any) -> dict[str, Any]:
    sizes = [steps * (part + 1) // _PARTS - steps * part // _PARTS for part in range(_PARTS)]
    parts = [_timed(size, step, wait) for size in sizes]
    return {"seconds": sum(parts), "parts": parts}


def _timed(steps: int, step: Any, wait: Any) -> float:
    wait()
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return time.perf_counter() - begun


def _with_noise(arguments: argparse.Namespace, step: Any, wait: Any) -> dict[str, Any]:
    """Quiet and noisy blocks in turns: what else the machine does meets both alike."""
    noisy = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
    writer = None
    if noisy:
        command = [sys.executable, "-c", _WRITER, str(arguments.noise)]
        writer = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0)
        time.sleep(0.5)
    seconds: list[list[float]] = [[], []]
    loud = 0.0
    for block in range(_BLOCKS):
        on = block % 2
        began = time.monotonic()
        if writer is not None and writer.stdin is not None:
            writer.stdin.write(b"01"[on : on + 1])
        _timed(_SETTLING, step, wait)
        seconds[on].append(_timed(arguments.steps, step, wait) / arguments.steps)
        loud += (time.monotonic() - began) * on
    if writer is not None:
        writer.communicate()
    quiet, noise = map(statistics.median, seconds)
    return {"quiet": quiet, "noisy": noise, "blocks": seconds, "loudSeconds": loud}


if __name__ == "__main__":
    main()
