"""How soon `dsjob` has its answer: from the start of the process to its end, against a Python that does nothing.

As installed by pip, that is with compiled modules: an environment that writes no bytecode would measure the compiler.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET_SECONDS = 0.3
DSJOB = [sys.executable, "-m", "deepspeed_operator.cli.main"]
ARTICLE = str(ROOT / "examples/article.yaml")
COMMANDS = {
    "dsjob --help": [*DSJOB, "--help"],
    "dsjob validate, a job": [*DSJOB, "validate", ARTICLE],
    "dsjob validate, a configuration for 0.19.8": [*DSJOB, "validate", "-", "--deepspeed-version", "0.19.8"],
    "dsjob validate, a configuration for any version": [*DSJOB, "validate", "-"],
    "dsjob migrate": [*DSJOB, "migrate", ARTICLE, "--to", "0.19.8"],
}
CONFIG = b'{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'


def once(command: list[str], bytecode: str) -> float:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator"), "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    begun = time.monotonic()
    subprocess.run(command, input=CONFIG, stdout=subprocess.DEVNULL, env=environment, check=False)
    return time.monotonic() - begun


def measured(runs: int) -> dict[str, list[float]]:
    """All commands in turns, so that a busy moment of the machine hits all of them."""
    everything = {"python -c pass": [sys.executable, "-c", "pass"], **COMMANDS}
    times = {name: list[float]() for name in everything}
    with tempfile.TemporaryDirectory() as bytecode:
        for command in everything.values():
            once(command, bytecode)
        for _ in range(runs):
            for name, command in everything.items():
                times[name].append(once(command, bytecode))
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    times = measured(parser.parse_args().runs)
    base = statistics.median(times["python -c pass"])
    for name, taken in times.items():
        median = statistics.median(taken)
        print(
            f"{name}: median {median * 1000:.0f} ms, fastest {min(taken) * 1000:.0f} ms, {median / base:.1f} × nothing"
        )
    worst = max(statistics.median(times[name]) for name in COMMANDS)
    verdict = "within" if worst <= TARGET_SECONDS else "over"
    print(f"slowest median {worst:.3f} s, {verdict} the target of {TARGET_SECONDS} s")
    return 0 if worst <= TARGET_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
