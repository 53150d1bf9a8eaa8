"""What the host takes for a step: models so narrow that the GPU waits for it, under the Trainer and in a plain loop.

    torchrun --nproc-per-node 2 -m bench.gpu.host --output host.jsonl
    torchrun --nproc-per-node 2 -m bench.gpu.host --table fresh --steps 20 --output trainer.jsonl     ≈ 4 minutes

With `--table latest` or `fresh` those of bench.gpu.trainer, whose ranks then import while others are measured.

One JSON line a configuration: seconds of a step, and of them the host's in the engine's forward, backward and step.
With DS_ACCELERATOR=cpu a dry run.
"""

import argparse
from pathlib import Path

from bench.gpu import configurations, frameworks
from bench.gpu.fresh import Item, measure

# With the imports, which only the first ones wait for.
_SECONDS = 90
_TABLES = {"host": frameworks.host, "latest": frameworks.trainer_latest, "fresh": frameworks.trainer_fresh}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--table", choices=_TABLES, default="host")
    parser.add_argument("--only", nargs="*", default=[], help="names, or patterns of names")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--budget", type=float, default=3600, help="seconds after which no other one is begun")
    arguments = parser.parse_args()
    chosen = configurations.chosen(_TABLES[arguments.table](), arguments.only)
    items = [Item(each.name, {"record": each.record(), "steps": arguments.steps}, _SECONDS) for each in chosen]
    measure("bench.gpu.inside.host", items, arguments.output, arguments.budget)


if __name__ == "__main__":
    main()
