"""training.debug: what status says while nothing is started, and how that ends."""

from deepspeed_operator.api.status import ConditionType, State
from tests.unit.reconcile.simulation import Simulation, job

DEBUGGED = {"script": "train.py", "debug": True}


def debugged() -> Simulation:
    simulation = Simulation(job(training=DEBUGGED, runId="a"))
    simulation.settle()
    simulation.run_all()
    simulation.settle()
    return simulation


def test_status_says_that_nothing_runs_and_what_to_type() -> None:
    simulation = debugged()
    assert simulation.job.status.state is State.RUNNING
    message = simulation.condition(ConditionType.READY).message
    assert message.startswith("2 pods wait and run nothing, since spec.training.debug is true: kubectl exec -it ")
    assert "pretrain-1-0 -- bash; the hosts are in /etc/deepspeed-operator/hostfile." in message
    assert message.endswith(
        "Delete or suspend the job to end this, or set debug to false together with a new spec.runId."
    )


def test_with_a_new_run_the_program_starts() -> None:
    simulation = debugged()
    simulation.edit(training={"script": "train.py"}, runId="b")
    simulation.settle()
    simulation.remove(*simulation.pods)
    simulation.settle()
    simulation.run_all()
    simulation.settle()
    assert (simulation.run.id, simulation.attempt.number) == ("b", 2)
    assert "2 ranks run in 2 pods" in simulation.condition(ConditionType.READY).message


def test_suspended_it_holds_no_pod() -> None:
    simulation = debugged()
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.remove(*simulation.pods)
    simulation.settle()
    assert (simulation.job.status.state, simulation.pods) == (State.SUSPENDED, {})
