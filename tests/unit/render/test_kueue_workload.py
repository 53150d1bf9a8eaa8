"""Every golden file of Kueue's holds a job and, below it, the Workload that stands for it in its queue."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from deepspeed_operator.api.job import DeepSpeedJob
from tests.unit.reconcile.simulation import Simulation
from tests.unit.render.test_golden import GOLDEN, hold


def workload_of(written: str) -> list[dict[str, Any]]:
    simulation = Simulation(DeepSpeedJob.model_validate(yaml.safe_load(written)))
    simulation.settle()
    (workload,) = simulation.workloads.values()
    for of_the_server in ("uid", "resourceVersion"):
        del workload["metadata"][of_the_server]
    return [workload]


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("kueue/*.yaml")), ids=lambda path: path.stem)
def test_rendered_workloads_are_the_golden_ones(path: Path, request: pytest.FixtureRequest) -> None:
    hold(path, request, workload_of)
