"""Jobs against each other, in turns, each started by `dsjob run`: a recipe, and what `dsjob plan --apply` makes of it.

    dsjob plan bench/gpu/recipe.yaml … --apply 1 > advised.yaml
    python3 -m bench.gpu.recipe bench/gpu/recipe.yaml advised.yaml --fabric tcp8 --output recipe.jsonl

Prints samples a second, medians of all runs, and the gain over the first job.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.gpu import fabrics
from bench.gpu.expectations import WORLD, lines

_ROOT: Final = Path(__file__).parents[2]


def run(job: Path, fabric: str, steps: int, output: Path) -> float:
    """Run a job, and return its samples a second."""
    nodes = fabrics.nodes(fabric)
    command = [sys.executable, "-m", "deepspeed_operator.cli.main", "run", str(job)]
    command += ["--nodes", str(nodes), "--slots", str(WORLD // nodes)]
    told = {"LABEL": job.stem, "FABRIC": fabric, "STEPS": str(steps), "OUT": str(output)}
    done = subprocess.run(command, env={**os.environ, **told}, cwd=_ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{job} ended with {done.returncode}")
    return float(lines(output.read_text(encoding="utf-8"))[-1]["samples_per_second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--fabric", choices=fabrics.FABRICS, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help="timed ones, after two")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    speeds: dict[Path, list[float]] = {job: [] for job in arguments.jobs}
    for _ in range(arguments.rounds):
        for job in arguments.jobs:
            speeds[job].append(run(job.resolve(), arguments.fabric, arguments.steps, arguments.output.resolve()))
    first = statistics.median(speeds[arguments.jobs[0]])
    for job, found in speeds.items():
        median = statistics.median(found)
        print(
            json.dumps(
                {"job": job.stem, "fabric": arguments.fabric, "samples_per_second": found, "gain": median / first}
            )
        )


if __name__ == "__main__":
    main()
