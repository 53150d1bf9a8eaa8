"""Step times under transformers' Trainer: each configuration a job of its own, run by `dsjob run` on two GPUs.

    python3 -m bench.gpu.trainer --output trainer.jsonl         ≈ 8 minutes
    python3 -m bench.gpu.trainer --predict > predicted.jsonl    what is committed before

One JSON line a configuration: what the script measured, and in `said` what `dsjob run` told meanwhile: the prediction,
the first steps and the advice drawn from them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.gpu import configurations, frameworks
from bench.gpu.configurations import Configuration
from bench.gpu.expectations import VERSION, WORLD, expected_memory, setup_and_model
from deepspeed_operator.job.data_sheets import DEVICES
from deepspeed_operator.plan.advice.alternatives import Circumstances, plan_of
from deepspeed_operator.plan.time.costs import assumed
from deepspeed_operator.plan.time.links import Bandwidth, Links

_SECONDS: Final = 150
GPU: Final = DEVICES["H200-141G"]


def job(configuration: Configuration, output: Path, steps: int) -> dict[str, Any]:
    """The job that trains a configuration, and appends a line to `output`."""
    return {
        "apiVersion": "deepspeed-operator.dev/v1alpha1",
        "kind": "DeepSpeedJob",
        "metadata": {"name": configuration.name},
        "spec": {
            "slotsPerNode": WORLD,
            "deepspeedVersion": VERSION,
            "training": {
                "module": "bench.gpu.inside.trainer",
                "python": sys.executable,
                "integration": "Accelerate",
                "args": ["--label", configuration.name, "--steps", str(steps), "--output", str(output)],
            },
            "dsConfig": configuration.ds_config(),
            "model": {
                "fromConfig": configuration.model_config(),
                "sequenceLength": configuration.sequence,
                "attention": "SDPA",
                "activationCheckpointing": configuration.checkpointing,
            },
        },
    }


# What a table is trained by the Trainer of, and whose memory is measured on the same day.
_TABLES: Final = {
    "first": (frameworks.trainer, frameworks.families),
    "later": (frameworks.trainer_later, frameworks.read_families),
    "latest": (frameworks.trainer_latest, tuple[Configuration, ...]),
    "fresh": (frameworks.trainer_fresh, tuple[Configuration, ...]),
}


def predicted(configuration: Configuration) -> dict[str, Any]:
    """Seconds of a step by the GPU's data sheet and NVLink's, those in which the GPU waits for the host; peak bytes."""
    record = configuration.record()
    _, model = setup_and_model(record)
    found: dict[str, Any] = {"name": configuration.name, "memory": round(expected_memory(record).size)}
    if not configuration.framework:
        return {**found, "memory": round(expected_memory({**record, "world": 1}).size)}
    links = Links(Bandwidth(GPU.interconnect), None)
    costs = assumed(model, GPU, links, tokens=configuration.sequence, framework=True)
    around = Circumstances(model, WORLD, 1, VERSION, costs)
    time = plan_of(configuration.ds_config(), configuration.micro, configuration.accumulation, around).time
    return {**found, "seconds": round(time.seconds, 4), "host": round(time.host, 4)} if time is not None else found


def measured(chosen: list[Configuration], steps: int, budget: float, log: Path) -> Iterator[dict[str, Any]]:
    """Run one after the other, and yield what each measured; after `budget` seconds nothing more is begun."""
    begun = time.monotonic()
    for each in chosen:
        started = time.monotonic()
        if started - begun > budget:
            break
        with tempfile.TemporaryDirectory() as directory:
            output, file = Path(directory) / "measured.jsonl", Path(directory) / "job.yaml"
            file.write_text(json.dumps(job(each, output, steps)))
            command = [sys.executable, "-m", "deepspeed_operator.cli.main", "run", str(file)]
            done = subprocess.run(command, stdout=-1, stderr=-2, text=True, timeout=_SECONDS, check=False)
            with log.open("a", encoding="utf-8") as all_said:
                all_said.write(done.stdout)
            said = [line.partition("] ")[2] for line in done.stdout.splitlines() if "[dsjob] " in line]
            line = json.loads(output.read_text()) if output.exists() else each.record()
        took = round(time.monotonic() - started, 1)
        yield {**line, "said": said, "code": done.returncode, "seconds": took}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--table", choices=_TABLES, default="first")
    parser.add_argument("--predict", action="store_true", help="of these and of the families measured with them")
    parser.add_argument("--only", nargs="*", default=[], help="names, or patterns of names")
    parser.add_argument("--steps", type=int, default=22)
    parser.add_argument("--budget", type=float, default=3600, help="seconds after which no other one is begun")
    arguments = parser.parse_args()
    trained, families = _TABLES[arguments.table]
    if arguments.predict:
        for each in (*trained(), *families()):
            print(json.dumps(predicted(each)))
        return
    chosen = configurations.chosen(trained(), arguments.only)
    log = arguments.output.with_suffix(".log")
    for line in measured(chosen, arguments.steps, arguments.budget, log):
        with arguments.output.open("a", encoding="utf-8") as output:
            output.write(json.dumps(line) + "\n")
        print(f"{line['name']}: {line.get('mean', 0):.3f} s a step, {line['seconds']} s in all", flush=True)


if __name__ == "__main__":
    main()
