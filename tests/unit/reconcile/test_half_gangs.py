"""Of two gangs that each hold what the other waits for one goes on, and a gang alone keeps what it holds."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.status import State
from deepspeed_operator.reconcile.observe.half_gang import HalfGang
from tests.unit.reconcile.simulation import Simulation, job

WORDS = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are available."


def half_placed(created: str = "2026-01-01T00:00:05Z", **spec: Any) -> Simulation:
    """A job of two pods of 8 GPUs, of which one has a node."""
    given = job(slotsPerNode=8, dsConfig={"train_micro_batch_size_per_gpu": 2}, **spec)
    metadata = given.metadata.model_copy(update={"creation_timestamp": created})
    simulation = Simulation(given.model_copy(update={"metadata": metadata}))
    simulation.settle()
    simulation.change(0, node="node0")
    simulation.change(1, unschedulable=WORDS, unschedulable_since=simulation.now)
    simulation.settle()
    return simulation


def other(simulation: Simulation, **fields: Any) -> HalfGang:
    """Another job that is placed in part, and older unless the fields say otherwise."""
    half = HalfGang.of(simulation.pods.values(), "2026-01-01T00:00:00Z")
    assert half is not None
    return replace(half, **{"namespace": "a", "job": "first", **fields})


def message(simulation: Simulation) -> str:
    assert simulation.attempt.obstacle is not None
    return simulation.attempt.obstacle.message


def test_a_gang_that_is_alone_keeps_what_it_holds_and_says_what_that_is() -> None:
    simulation = half_placed()
    assert message(simulation).endswith("1 of 2 pods placed, holding 8 nvidia.com/gpu since 2026-01-01T00:00:00Z.")
    for _ in range(30):
        simulation.wait(10)
        simulation.settle()
    assert [pod.deleted_at for pod in simulation.pods.values()] == [None, None]
    assert simulation.settle().check_at == simulation.now + timedelta(seconds=10)


def test_the_younger_of_two_gangs_gives_its_pods_back_and_tries_again_later() -> None:
    simulation = half_placed()
    simulation.half_gangs = [other(simulation)]
    simulation.wait(9)
    simulation.settle()
    assert [pod.deleted_at for pod in simulation.pods.values()] == [None, None], "the scheduler may be at work"
    simulation.wait(11)
    simulation.settle()
    assert all(pod.deleted_at is not None for pod in simulation.pods.values())
    assert (simulation.attempt.phase, simulation.job.status.state) == (Phase.REFUSED, State.STARTING)
    assert "for which the older job a/first waits" in message(simulation)
    simulation.remove()
    simulation.half_gangs = []
    simulation.wait(29)
    simulation.settle()
    assert simulation.pods == {}
    simulation.wait(1)
    simulation.train()
    assert (simulation.attempt.number, simulation.attempt.obstacle) == (1, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"created": "2026-01-01T00:00:06Z"},
        {"created": "2026-01-01T00:00:05Z", "job": "z", "namespace": "ml"},
        {"waits_for": frozenset({"amd.com/gpu"})},
        {"holds": frozenset({"cpu"})},
        {"node_selector": (("pool", "b"),)},
    ],
    ids=["younger", "later by name", "waits for others", "holds others", "elsewhere"],
)
def test_a_gang_keeps_what_no_older_one_waits_for_or_what_would_not_help_it(fields: dict[str, Any]) -> None:
    simulation = half_placed(template={"spec": {"nodeSelector": {"pool": "a"}, "containers": [{"name": "trainer"}]}})
    simulation.half_gangs = [other(simulation, **fields)]
    simulation.wait(60)
    simulation.settle()
    assert [pod.deleted_at for pod in simulation.pods.values()] == [None, None]


def test_a_gang_gives_back_what_it_may_hold_only_for_so_long() -> None:
    simulation = half_placed(lifecycle={"partialGangDeadlineSeconds": 300})
    simulation.wait(295)
    outcome = simulation.settle()
    assert [pod.deleted_at for pod in simulation.pods.values()] == [None, None]
    assert outcome.check_at == simulation.now + timedelta(seconds=5)
    simulation.wait(5)
    simulation.settle()
    assert all(pod.deleted_at is not None for pod in simulation.pods.values())
    assert "longer than spec.lifecycle.partialGangDeadlineSeconds (300 s)" in message(simulation)


def test_a_run_that_finds_no_room_says_to_whom_its_pods_were_given_back_last() -> None:
    simulation = half_placed(lifecycle={"startupDeadlineSeconds": 60}, failurePolicy={"maxInfrastructureRestarts": 0})
    simulation.half_gangs = [other(simulation)]
    simulation.wait(20)
    simulation.settle()
    simulation.remove()
    simulation.wait(40)
    simulation.settle()
    assert simulation.job.status.failure is not None
    assert simulation.job.status.failure.reason == "StartupDeadlineExceeded"
    assert "for which the older job a/first waits" in simulation.job.status.failure.message


def test_pods_that_have_gone_or_end_are_no_part_of_a_gang() -> None:
    simulation = half_placed()
    placed, homeless = simulation.pod(0), simulation.pod(1)
    assert HalfGang.of([placed.last_view(), homeless], "") is None
    assert HalfGang.of([placed, replace(homeless, deleted_at=simulation.now)], "") is None
    assert HalfGang.of([placed, replace(homeless, attempt=2)], "") is None
