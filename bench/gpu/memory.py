"""Memory of each phase of training, every configuration in fresh processes: an engine leaves GiBs behind.

    torchrun --nproc-per-node 2 -m bench.gpu.memory --output memory.jsonl [--only large-s2-g4 …] [--budget 300]
    OUT=DIR dsjob run bench/gpu/memory.yaml

With DS_ACCELERATOR=cpu a dry run: a tiny model, and the processes' memory instead of the device's.

One JSON line a configuration: for each phase the highest torch.cuda.max_memory_allocated of all micro steps of three
optimizer steps and all ranks, and what stays allocated after it; in `ranks` every one of them. `between`: what waits
where a micro step is not its step's last; the `phases` of older files count it as `step`.
"""

import argparse
from pathlib import Path

from bench.gpu import configurations, frameworks
from bench.gpu.fresh import Item, measure

# With the imports, which only the first ones wait for.
_SECONDS = 90
_TABLES = {"memory": configurations.memory, "families": frameworks.families, "read-families": frameworks.read_families}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--table", choices=_TABLES, default="memory")
    parser.add_argument("--only", nargs="*", default=[], help="names, or patterns of names")
    parser.add_argument("--budget", type=float, default=3600, help="seconds after which no other one is begun")
    arguments = parser.parse_args()
    chosen = configurations.chosen(_TABLES[arguments.table](), arguments.only)
    items = [Item(each.name, each.record(), _SECONDS) for each in chosen]
    measure("bench.gpu.inside.memory", items, arguments.output, arguments.budget)


if __name__ == "__main__":
    main()
