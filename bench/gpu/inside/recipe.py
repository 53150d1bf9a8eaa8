"""A job's training script: the large model by the job's ds_config, and how long its optimizer steps took."""

# pyright: basic, reportMissingImports=false

import argparse
import json
import os
import statistics
from pathlib import Path

from bench.gpu import fabrics
from bench.gpu.configurations import Configuration, chosen
from bench.gpu.inside import device, model, world

_WARM_UP = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--label", required=True)
    parser.add_argument("--fabric", choices=fabrics.FABRICS, required=True)
    parser.add_argument("--steps", type=int, required=True, help="timed ones, after two")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    # Read by NCCL when the first group is made.
    os.environ.update(fabrics.environment(arguments.fabric, int(os.environ["RANK"])))
    config = json.loads(Path(os.environ["DEEPSPEED_CONFIG"]).read_text())
    here = world.join()
    (base,) = chosen([Configuration(arguments.label, "large", config.get("zero_optimization", {}).get("stage", 0))], [])
    micro = config["train_micro_batch_size_per_gpu"]
    record = {**base.record(), "micro": micro, "ds_config": config}
    if not base.fused:
        config["optimizer"]["params"]["torch_adam"] = True
    engine = model.engine_of(record, model.build(record, here))
    batch = model.batch(record, here)
    accumulation = engine.gradient_accumulation_steps()

    def step() -> None:
        for _ in range(accumulation):
            engine.backward(engine(**batch).loss)
            engine.step()

    for _ in range(_WARM_UP):
        step()
    times = [device.timed(step) for _ in range(arguments.steps)]
    if world.rank() == 0:
        median = statistics.median(times)
        about = {"label": arguments.label, "fabric": arguments.fabric, "ds_config": config, **model.versions()}
        found = {"step_seconds": times, "median": median, "samples_per_second": engine.train_batch_size() / median}
        print(f"{arguments.label}: {median:.3f} s a step, {found['samples_per_second']:.2f} samples/s", flush=True)
        with arguments.output.open("a", encoding="utf-8") as output:
            output.write(json.dumps({**about, **found}) + "\n")


if __name__ == "__main__":
    main()
