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


def tell(simulation: Simulation, hang: Any, stragglers: Any = ()) -> None:
    state: dict[str, Any] = {**STATE, "warnings": [], "deepspeed": None, "hang": hang, "stragglers": stragglers}
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


SLOW = {"words": "rank 3 of this pod takes 1.40 times as long", "pod": "llm-1-1", "node": "node2"}


def test_a_pod_that_all_wait_for_is_told_once_with_its_node() -> None:
    simulation = training()
    for _ in range(2):
        tell(simulation, None, [SLOW])
    (finding,) = simulation.job.status.findings
    assert finding.message.startswith("pod llm-1-1 on node node2 makes the others wait: rank 3 of this pod takes 1.40")
    tell(simulation, None, [SLOW, {**SLOW, "pod": "llm-1-0"}])
    events = [each.message for each in simulation.events if each.reason == "Straggler"]
    assert ["llm-1-0" in each for each in events] == [False, True]
    assert "llm-1-1" not in events[1], "it was told before"
    tell(simulation, None)
    assert simulation.job.status.findings == []


@pytest.mark.parametrize("stragglers", [7, [7], [SLOW] * 5, [{**SLOW, "words": "x" * 400}]])
def test_what_no_agent_tells_of_slow_pods_is_not_taken(stragglers: Any) -> None:
    simulation = training()
    tell(simulation, None, stragglers)
    assert simulation.job.status.findings == []
