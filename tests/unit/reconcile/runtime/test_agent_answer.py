"""Whatever answers in place of rank 0's agent, status can be written."""

import hashlib
import json
from typing import Any

import pytest

from deepspeed_operator.api.status import MAX_MESSAGE, State
from deepspeed_operator.reconcile.runtime.agent_answer import report_of
from tests.unit.reconcile.simulation import Simulation, job

STATE: dict[str, Any] = {
    "protocol": 3,
    "uidDigest": hashlib.sha256(b"job-1").hexdigest(),
    "attempt": 1,
    "deepspeed": "0.18.9",
    "warnings": ["/dev/shm has 64 MiB"],
    "transport": None,
    "measured": None,
}


def told(state: Any) -> Simulation:
    """A job whose rank 0 answers so."""
    simulation = Simulation(job())
    simulation.agent = report_of(state, "job-1", 1, simulation.now)
    return simulation.train()


@pytest.mark.parametrize("protocol", [2, 3])
def test_version_and_warnings_are_in_status_also_of_an_attempt_that_an_earlier_operator_started(protocol: int) -> None:
    simulation = told({**STATE, "protocol": protocol})
    assert simulation.run.deepspeed_version == "0.18.9"
    assert [finding.message for finding in simulation.job.status.findings] == ["/dev/shm has 64 MiB"]


@pytest.mark.parametrize(
    "state",
    [
        *(None, [], "Running", {}),
        *({**STATE, "attempt": 2}, {**STATE, "uidDigest": "0" * 64}, {**STATE, "protocol": 4}),
    ],
)
def test_what_is_not_of_this_attempt_is_no_answer(state: Any) -> None:
    assert report_of(state, "job-1", 1, Simulation(job()).now) is None


@pytest.mark.parametrize("version", [19, ["0.19.8"], {}, "0.19.8+" + "x" * 64, "0.19.8\udce9", None])
def test_a_version_that_status_could_not_hold_is_not_taken(version: Any) -> None:
    assert told({**STATE, "deepspeed": version}).run.deepspeed_version == "0.19.8"  # that of the image


def test_a_warning_is_told_as_far_as_it_is_text() -> None:
    status = told({**STATE, "warnings": ["caf\udce9 differs", "x" * 10_000, 7]}).job.status
    assert [finding.message for finding in status.findings] == ["caf? differs", "x" * 4096]
    json.dumps(status.model_dump(mode="json"), ensure_ascii=False).encode()


def test_a_start_that_failed_with_more_words_than_status_holds_is_told_as_far_as_it_does() -> None:
    simulation = Simulation(job())
    simulation.settle()
    simulation.change(
        0, node="node0", waiting_container="trainer", waiting_reason="ErrImagePull", waiting_message="x" * MAX_MESSAGE
    )
    simulation.wait(3600)
    simulation.settle()
    assert simulation.job.status.state is State.FAILED
    assert simulation.job.status.failure is not None
    assert len(simulation.job.status.failure.message) == MAX_MESSAGE
