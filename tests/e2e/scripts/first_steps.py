"""Trains two wide layers, and prints what a step and an all-reduce took by this script's own clock; then it stays."""

import argparse
import json
import time

import deepspeed
import torch
from deepspeed import comm
from torch import distributed, nn

WIDTH = 1024
FIRST, LAST = 5, 20
REPEATED = 3
BYTES = 16 << 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--stay", type=float, default=0, help="seconds, after the last step")
    arguments = parser.parse_args()
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=arguments.config)
    batch = torch.randn(engine.train_micro_batch_size_per_gpu(), WIDTH)
    times: list[float] = []
    for _ in range(LAST + 2):
        for _ in range(engine.gradient_accumulation_steps()):
            engine.backward(engine(batch).square().mean())
            engine.step()
        times.append(time.perf_counter())
    data = torch.zeros(BYTES // 4)
    distributed.all_reduce(data)
    begun = time.perf_counter()
    for _ in range(REPEATED):
        distributed.all_reduce(data)
    seconds = (time.perf_counter() - begun) / REPEATED
    if comm.get_rank() == 0:
        facts = {
            "parameters": sum(each.numel() for each in model.parameters()),
            "step": (times[LAST - 1] - times[FIRST - 1]) / (LAST - FIRST),
            "bandwidth": BYTES / seconds,
            "steps": engine.global_steps,
        }
        print("RESULT", json.dumps(facts), flush=True)
    time.sleep(arguments.stay)


if __name__ == "__main__":
    main()
