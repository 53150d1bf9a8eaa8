"""The preflight: what the network carries, measured before the ranks start."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from typing import Any, Mapping

import dso_sweep
from dso_plan import Plan
from dso_ranks import Spec, specs

LIMIT_SECONDS = 300.0
RUN = "import sys; sys.path.insert(0, sys.argv[1]); import dso_sweep; dso_sweep.main()"
PORTS, FIRST_PORT = 10000, 20000


class Sweep:
    """The sweep's processes on this node: one for each rank, whatever starts the ranks themselves."""

    def __init__(self, plan: Plan, extra: Mapping[str, str]) -> None:
        self.plan = plan
        self.minimum = plan.preflight or 0
        self.directory = tempfile.mkdtemp(prefix="deepspeed-operator-sweep-")
        own = copy.copy(plan)
        own.launcher, own.kind, own.args = "Ranks", "command", []
        here = os.path.dirname(dso_sweep.__file__)
        own.program = [plan.python, "-u", "-c", RUN, here, self.directory, str(self.minimum)]
        # Not the ranks' port: a node that is done early starts its ranks while others still measure.
        port = FIRST_PORT + (plan.master_port - FIRST_PORT + PORTS // 2) % PORTS
        self.specs: list[Spec] = specs(own, extra)
        for spec in self.specs:
            spec.environment["MASTER_PORT"] = str(port)

    def result(self, local: int) -> dict[str, Any] | None:
        """What one of the processes measured; all measure the same."""
        try:
            with open(os.path.join(self.directory, f"sweep.{local}"), encoding="utf-8") as file:
                found: dict[str, Any] = json.load(file)
        except (OSError, ValueError):
            return None
        return found

    def below_minimum(self, found: Mapping[str, Any]) -> str:
        got, ranks = found["busBandwidth"], self.plan.nodes * self.plan.slots
        if got >= self.minimum:
            return ""
        wanted = f"spec.network.minimumBusBandwidth asks for {self.minimum / 1e9:.3f} GB/s"
        return f"{wanted}; an all-reduce of {ranks} ranks over {found['backend']} reaches {got / 1e9:.3f} GB/s"

    def end(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
