"""Counting what DeepSpeed passes to torch.distributed."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle import rootfs

# torch.distributed's function → the collective's name in a plan.
NAMES = {
    "all_reduce": "all-reduce",
    "reduce": "reduce",
    "all_gather_into_tensor": "all-gather",
    "reduce_scatter_tensor": "reduce-scatter",
    "broadcast": "broadcast",
}


def counted(
    version: str, world: int, layers: Sequence[tuple[int, int]], configs: Sequence[Mapping[str, Any]]
) -> list[dict[str, int]]:
    """Bytes of each collective in one step of linear layers, for each configuration."""
    rootfs.installed(version)
    asked = json.dumps({"world": world, "layers": layers, "configs": configs})
    done = subprocess.run(
        rootfs.command(version, "traffic.py"), input=asked, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers: list[dict[str, int]] = json.loads(done.stdout)
    return [{NAMES[name]: size for name, size in answer.items()} for answer in answers]
