"""Looking at a job parses its template once, however many questions are asked of it."""

from collections.abc import Callable
from typing import Any

import pytest

from deepspeed_operator.job.template import PodTemplate
from tests.unit.reconcile.simulation import Simulation, job

TEMPLATE = {
    "spec": {
        "containers": [{"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": 2, "memory": "8Gi"}}}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }
}


def test_a_job_is_judged_rendered_and_run_with_one_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[Any] = []
    parse: Callable[[Any], PodTemplate] = PodTemplate.parse

    def counted(_: type[PodTemplate], written: Any) -> PodTemplate:
        parsed.append(written)
        return parse(written)

    monkeypatch.setattr(PodTemplate, "parse", classmethod(counted))
    network = {"profile": "InfiniBand"}
    simulation = Simulation(job(template=TEMPLATE, network=network, model={"parameters": 7_000_000_000})).train()
    simulation.end(0)
    simulation.end(1)
    simulation.settle()
    assert simulation.judgements == 1
    assert parsed == [TEMPLATE]
