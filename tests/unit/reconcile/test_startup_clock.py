"""The startup deadline counts only time in which the pods could start: not a queue's, and not that of old pods."""

from dataclasses import replace

import pytest

from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.reconcile.observe.observed import Facts
from deepspeed_operator.reconcile.observe.pods import moment
from tests.unit.reconcile.simulation import Simulation, job
from tests.unit.reconcile.test_life_of_a_job import REFUSED, running, started

SECONDS = 60
LIMITED = {"lifecycle": {"startupDeadlineSeconds": SECONDS}}
QUEUE = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")


def gate(simulation: Simulation, *indices: int, gates: tuple[str, ...] = QUEUE) -> None:
    for index in indices:
        simulation.change(index, gates=gates)
    simulation.settle()


def pass_time(simulation: Simulation, seconds: int) -> None:
    """Let time pass, with a look now and then."""
    for _ in range(seconds // 10):
        simulation.wait(10)
        simulation.settle()


def gets_its_whole_deadline(simulation: Simulation) -> None:
    pass_time(simulation, SECONDS - 10)
    simulation.facts = Facts()
    simulation.wait(9)
    simulation.settle()
    assert simulation.job.status.state is State.STARTING
    simulation.wait(1)
    simulation.settle()
    assert simulation.job.status.failure is not None
    assert simulation.job.status.failure.reason == "StartupDeadlineExceeded"


@pytest.mark.parametrize("gated", [(0, 1), (1,)])
def test_pods_that_a_queue_holds_back_get_their_whole_deadline_once_it_lets_them(gated: tuple[int, ...]) -> None:
    simulation = started(**LIMITED)
    gate(simulation, *gated)
    said = simulation.condition(ConditionType.RUNNING)
    assert (simulation.job.status.state, said.reason) == (State.STARTING, "SchedulingGated")
    assert "kueue.x-k8s.io/admission, kueue.x-k8s.io/topology" in said.message
    assert simulation.attempt.admitted_time is None
    written = len(simulation.writes)
    pass_time(simulation, 1800)
    assert simulation.writes[written:] == []
    assert [(event.type, event.reason) for event in simulation.events[-1:]] == [("Normal", "SchedulingGated")]
    gate(simulation, *gated, gates=())
    assert simulation.condition(ConditionType.RUNNING).reason == "Starting"
    gets_its_whole_deadline(simulation)


def test_an_operator_that_was_away_when_the_queue_let_the_pods_counts_from_when_it_sees_that() -> None:
    simulation = started(**LIMITED)
    gate(simulation, 0, 1)
    simulation.facts = Facts()
    for index in range(2):
        simulation.change(index, gates=())
    simulation.wait(3600)
    simulation.settle()
    gets_its_whole_deadline(simulation)


def test_pods_that_started_while_the_operator_was_away_run() -> None:
    simulation = started(**LIMITED)
    gate(simulation, 0, 1)
    simulation.wait(3600)
    for index in range(2):
        simulation.change(index, gates=())
    simulation.run_all()
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    assert simulation.attempt.admitted_time is not None


def test_a_pod_that_is_made_anew_may_be_held_back_anew() -> None:
    simulation = started(**LIMITED)
    pass_time(simulation, SECONDS - 10)
    simulation.remove("pretrain-1-1")
    simulation.settle()
    gate(simulation, 1)
    pass_time(simulation, 600)
    gate(simulation, 1, gates=())
    gets_its_whole_deadline(simulation)


def test_an_attempt_gets_its_whole_deadline_once_the_old_pods_have_ended() -> None:
    simulation = running(**LIMITED)
    simulation.edit(runId="b")
    simulation.settle()
    assert simulation.attempt.admitted_time is None
    pass_time(simulation, 3600)
    assert simulation.condition(ConditionType.RUNNING).reason == "WaitingForOldPods"
    simulation.remove()
    simulation.settle()
    gets_its_whole_deadline(simulation)


def test_a_job_waits_for_the_pods_of_a_deleted_one_without_a_deadline() -> None:
    earlier = running()
    metadata = earlier.job.metadata.model_copy(update={"uid": "job-2"})
    later = Simulation(job(**LIMITED).model_copy(update={"metadata": metadata}))
    later.pods = {name: replace(pod, lost_since=later.now) for name, pod in earlier.pods.items()}
    later.settle()
    pass_time(later, 3600)
    assert later.job.status.state is State.STARTING
    later.pods.clear()
    later.settle()
    gets_its_whole_deadline(later)


def test_a_start_for_which_spec_is_another_runs_gets_its_whole_deadline_once_it_is_back() -> None:
    simulation = running(**LIMITED)
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.edit(suspend=False)
    simulation.settle()
    simulation.edit(runId="b", training={"script": "other.py"}, dsConfig=REFUSED)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    pass_time(simulation, 3600)
    assert simulation.job.status.state is State.STARTING
    simulation.edit(runId="", training={"script": "train.py"}, dsConfig=job().spec.ds_config)
    simulation.settle()
    gets_its_whole_deadline(simulation)


def test_each_attempt_has_its_own_time_since_when_its_pods_may_start() -> None:
    simulation = running()
    assert simulation.attempt.admitted_time == simulation.attempt.start_time
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    simulation.wait(100)
    simulation.edit(suspend=False)
    simulation.settle()
    assert simulation.attempt.admitted_time is not None
    assert moment(simulation.attempt.admitted_time) == simulation.now


def test_pods_that_find_no_node_are_held_to_the_deadline() -> None:
    simulation = started(**LIMITED)
    simulation.change(1, unschedulable="0/2 nodes are available.")
    simulation.settle()
    gets_its_whole_deadline(simulation)
