"""The bandwidth preflight: what the network carries, measured before the ranks start."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from typing import Any, Mapping

import dso_sweep
from dso_launch import LaunchDocument
from dso_ranks import ProcessSpec, specs

LIMIT_SECONDS = 300.0
RUN = "import sys; sys.path.insert(0, sys.argv[1]); import dso_sweep; dso_sweep.main()"


class BandwidthSweep:
    """The sweep's processes on this node, one for each rank, whatever starts the ranks themselves; and their result."""

    def __init__(self, launch: LaunchDocument, number: int, extra: Mapping[str, str]) -> None:
        self.launch = launch
        self.minimum = launch.preflight or 0
        self.directory = tempfile.mkdtemp(prefix="deepspeed-operator-sweep-")
        own = copy.copy(launch)
        own.launcher, own.kind, own.args = "Ranks", "command", []
        here = os.path.dirname(dso_sweep.__file__)
        own.program = [launch.python, "-u", "-c", RUN, here, self.directory, str(self.minimum)]
        self.specs: list[ProcessSpec] = specs(own, number, extra)
        for spec in self.specs:
            # Not the ranks' port: a node that is done early starts its ranks while others still measure.
            spec.environment["MASTER_PORT"] = str(launch.preflight_port)

    def result(self, local: int) -> dict[str, Any] | None:
        """What one of the processes measured; all measure the same. None if it wrote nothing."""
        try:
            with open(os.path.join(self.directory, f"sweep.{local}"), encoding="utf-8") as file:
                result: dict[str, Any] = json.load(file)
        except (OSError, ValueError):
            return None
        return result

    def below_minimum(self, result: Mapping[str, Any]) -> str:
        """Why the network is too slow, with the numbers; empty if it is not."""
        reached, ranks = result["busBandwidth"], self.launch.nodes * self.launch.slots
        if reached >= self.minimum:
            return ""
        wanted = f"spec.network.minimumBusBandwidth asks for {self.minimum / 1e9:.3f} GB/s"
        return f"{wanted}; an all-reduce of {ranks} ranks over {result['backend']} reaches {reached / 1e9:.3f} GB/s"

    def end(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
