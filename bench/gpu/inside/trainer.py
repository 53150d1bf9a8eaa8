"""transformers' Trainer around a configuration: what its steps take, and in them the host.

As a job's training script, `python -m bench.gpu.inside.trainer --label NAME --output FILE`: the job's ds_config, batch
sizes and all, is what the Trainer is given. One JSON line on rank 0.
"""

# pyright: basic, reportMissingImports=false

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.utils.data import Dataset

from bench.gpu import configurations, frameworks
from bench.gpu.inside import device, model, world

# Steps after which all is compiled and recorded, and the mean is taken: as what the agent measures.
WARM_UP = 5


class _Tokens(Dataset):
    """Random tokens, as many samples as are asked for."""

    def __init__(self, record: dict[str, Any], samples: int) -> None:
        generator = torch.Generator().manual_seed(7)
        size = (min(samples, 64), record["sequence"])
        self._tokens = torch.randint(0, record["model_config"]["vocab_size"], size, generator=generator)
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = self._tokens[index % len(self._tokens)]
        return {"input_ids": tokens, "labels": tokens}


class _Clock(transformers.TrainerCallback):
    """When each optimizer step ended, by the host: nothing is waited for."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ends.append(time.perf_counter())


def steps(record: dict[str, Any], here: torch.device, number: int) -> dict[str, Any]:
    """Train so many steps by the Trainer, and return what they took."""
    arguments = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=number,
        per_device_train_batch_size=record["micro"],
        gradient_accumulation_steps=record["accumulation"],
        learning_rate=1e-5,
        bf16=record["dtype"] == "bf16",
        deepspeed=record["ds_config"],
        gradient_checkpointing=record["checkpointing"],
        remove_unused_columns=False,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=not device.CUDA,
    )
    # The Trainer's own arguments are what divides the model at stage 3, as in users' scripts.
    built = model.build(record, here)
    clock = _Clock()
    samples = number * record["micro"] * record["accumulation"] * world.size()
    trainer = transformers.Trainer(
        model=built, args=arguments, train_dataset=_Tokens(record, samples), callbacks=[clock]
    )
    device.reset_peak()
    with Spent() as spent:
        trainer.train()
        device.wait()
        ended = time.perf_counter()
    times = [after - before for before, after in itertools.pairwise(clock.ends)]
    later = clock.ends[WARM_UP - 1]
    return {
        "step_seconds": times,
        # The last step may have ended on the device after its end on the host.
        "mean": (ended - later) / (number - WARM_UP),
        "median": statistics.median(times[WARM_UP - 1 :]),
        "host": spent.means(),
        "peak": device.peak(),
        **model.parameters(built),
    }


class Spent:
    """Seconds of the host in the engine's forward pass, backward pass and step; nothing waits for the device."""

    _METHODS = ("forward", "backward", "step")

    def __enter__(self) -> "Spent":
        from deepspeed.runtime.engine import DeepSpeedEngine  # noqa: PLC0415

        self._engine, self._before, self._seconds = DeepSpeedEngine, {}, {}
        for name in self._METHODS:
            self._before[name] = getattr(DeepSpeedEngine, name)
            self._seconds[name] = []
            setattr(DeepSpeedEngine, name, self._timed(self._before[name], self._seconds[name]))
        return self

    def __exit__(self, *_: object) -> None:
        for name, method in self._before.items():
            setattr(self._engine, name, method)

    @staticmethod
    def _timed(method: Any, seconds: list[float]) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            try:
                return method(*arguments, **named)
            finally:
                seconds.append(time.perf_counter() - begun)

        return call

    def means(self) -> dict[str, float]:
        """Of each method, the median of its calls' later half."""
        return {name: statistics.median(each[len(each) // 2 :]) for name, each in self._seconds.items() if each}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--label", required=True, help="a configuration of bench.gpu.frameworks")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    (configuration,) = configurations.chosen([frameworks.named(arguments.label)], [])
    record = configuration.record()
    record["ds_config"] = json.loads(Path(os.environ["DEEPSPEED_CONFIG"]).read_text())
    here = world.join()
    found = steps(record, here, arguments.steps)
    if world.rank() == 0:
        print(f"{arguments.label}: {found['mean']:.3f} s a step", flush=True)
        with arguments.output.open("a", encoding="utf-8") as output:
            output.write(json.dumps({**record, "world": world.size(), **model.versions(), **found}) + "\n")


if __name__ == "__main__":
    main()
