"""Time and traffic of optimizer steps: many configurations in one process group, one group for each fabric.

    torchrun --nproc-per-node 2 -m bench.gpu.timing --output timing.jsonl --table timing --fabrics nvlink tcp8
    OUT=DIR dsjob run bench/gpu/timing.yaml

With DS_ACCELERATOR=cpu a dry run: a tiny model, and gloo whatever the fabric.

One JSON line a configuration, fabric and round. `step_seconds` are the wall clock's, until the device has ended a step,
after a warm-up, in whose last step traffic is counted. A calibration has `phases` besides: seconds of forward pass,
backward pass and optimizer step of each micro step, medians of two steps that wait after each.
"""

import argparse
import os
from pathlib import Path

from bench.gpu import configurations, fabrics
from bench.gpu.fresh import Item, measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--table", choices=configurations.TABLES, default="timing")
    parser.add_argument("--only", nargs="*", default=[], help="names, or patterns of names")
    parser.add_argument("--fabrics", nargs="+", choices=fabrics.FABRICS, default=["nvlink"])
    parser.add_argument("--warm-up", type=int, default=2, help="steps before, one more at stage 3; 2 or more")
    parser.add_argument("--timed", type=int, default=4, help="timed steps; 0 counts traffic only")
    parser.add_argument("--seconds", type=float, default=300, help="the most that a fabric may take")
    parser.add_argument("--rounds", type=int, default=1, help="how often all are measured, in turns and new processes")
    arguments = parser.parse_args()
    table = configurations.TABLES[arguments.table]()
    records = [each.record() for each in configurations.chosen(table, arguments.only)]
    asked = {
        "records": records,
        "warm_up": arguments.warm_up,
        "timed": arguments.timed,
        "calibrate": arguments.table.endswith("calibration"),
    }
    rank = int(os.environ["RANK"])
    items = [
        Item(
            fabric,
            {**asked, "fabric": fabric, "nodes": fabrics.nodes(fabric)},
            arguments.seconds,
            fabrics.environment(fabric, rank),
        )
        for _ in range(arguments.rounds)
        for fabric in arguments.fabrics
    ]
    measure("bench.gpu.inside.timing", items, arguments.output, budget=arguments.seconds * len(items))


if __name__ == "__main__":
    main()
