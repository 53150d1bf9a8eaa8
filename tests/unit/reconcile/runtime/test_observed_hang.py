"""Ranks that hang and go on to: a finding while rank 0's agent tells it, and one event."""

import json
from typing import Any

import pytest

from deepspeed_operator.api.status import State
from deepspeed_operator.reconcile.runtime.agent_answer import report_of
from tests.unit.reconcile.runtime.test_agent_answer import STATE
from tests.unit.reconcile.simulation import Simulation, agent_says, job

HANG: dict[str, Any] = {
    "words": "rank 1 is in dataloader.py:88 (fetch), rank 0 in all_reduce; no step for 301 s, learned limit 300 s",
    "learned": True,
    "rank": 1,
    "pod": "llm-1-1",
    "node": "node2",
}


def tell(simulation: Simulation, hang: Any) -> None:
    state: dict[str, Any] = {**STATE, "warnings": [], "deepspeed": None, "hang": hang}
    simulation.agent = report_of(state, "job-1", 1, simulation.now)
    for _ in range(3):
        simulation.wait(31)
        simulation.settle()


def training() -> Simulation:
    simulation = Simulation(job())
    simulation.agent = report_of({**STATE, "warnings": [], "deepspeed": None}, "job-1", 1, simulation.now)
    return simulation.train()


def test_it_is_told_once_and_is_gone_when_steps_go_on() -> None:
    simulation = training()
    for _ in range(3):
        tell(simulation, HANG)
        (finding,) = simulation.job.status.findings
        assert finding.message == f"the ranks hang: {HANG['words']} (pod llm-1-1 on node node2)"
    (event,) = [each for each in simulation.events if each.reason == "Hang"]
    assert "Write spec.lifecycle.hang: Restart to have the ranks start again" in event.message
    simulation.agent = None  # it does not answer
    simulation.wait(31)
    simulation.settle()
    assert simulation.job.status.findings != []
    tell(simulation, None)
    assert simulation.job.status.findings == []
    assert simulation.job.status.state is State.RUNNING


def test_a_run_that_ends_hangs_no_more() -> None:
    simulation = training()
    tell(simulation, HANG)
    for index in (0, 1):
        simulation.end(index, 0, agent_says(0, None, None, "Completed"))
    simulation.settle()
    assert simulation.job.status.findings == []


@pytest.mark.parametrize(
    "hang", [7, {}, {**HANG, "words": "x" * 5000}, {**HANG, "rank": -1}, {**HANG, "node": "caf\udce9" * 500}]
)
def test_whatever_answers_status_can_be_written(hang: Any) -> None:
    simulation = training()
    tell(simulation, hang)
    json.dumps(simulation.job.status.model_dump(mode="json"), ensure_ascii=False).encode()
    assert simulation.job.status.findings == []
