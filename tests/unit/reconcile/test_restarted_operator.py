"""An operator that ends after any of its writes: the next one, which knows nothing, brings the run to the same end."""

from collections.abc import Callable

import pytest

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.status import State
from tests.unit.reconcile.simulation import GRACE, Simulation, agent_says, job


class EndedError(Exception):
    """The operator's process ends."""


class Writes(list[str]):
    """Ends the operator after so many writes."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def append(self, write: str, /) -> None:
        super().append(write)
        if len(self) == self._most:
            raise EndedError


def kubelets(simulation: Simulation) -> bool:
    """End what was deleted and start what was made; return whether there was anything to do."""
    deleted = [name for name, pod in simulation.pods.items() if pod.deleted_at is not None and not pod.disruption]
    if deleted:
        simulation.remove(*deleted)
    if any(pod.phase == "Pending" for pod in simulation.pods.values()):
        simulation.run_all()
        return True
    return bool(deleted)


def preempted_then_done(simulation: Simulation) -> bool:
    """Do what comes next in the life of a job whose first attempt is preempted."""
    if kubelets(simulation):
        return True
    if simulation.attempt.phase is Phase.BACKING_OFF:
        simulation.wait(60)
        return True
    ended = [pod for pod in simulation.pods.values() if pod.attempt == simulation.attempt.number and pod.finished]
    if simulation.attempt.phase is not Phase.RUNNING or ended:
        return False
    if simulation.attempt.number == 1:
        gone = {"deleted_at": simulation.now, "grace_ends": simulation.now + GRACE}
        simulation.change(1, disruption="PreemptionByScheduler", **gone)
        simulation.end(1, 143, agent_says(1, None, None, "Terminated"))
        simulation.wait(12)  # rank 0's pod does not end by itself
        return True
    for index in (0, 1):
        simulation.end(index)
    return True


def suspended_between_attempts(simulation: Simulation) -> bool:
    if simulation.attempt.phase is Phase.BACKING_OFF and not simulation.job.spec.suspend:
        simulation.edit(suspend=True)
        return True
    if simulation.attempt.phase is Phase.SUSPENDED and simulation.job.spec.suspend and not simulation.pods:
        simulation.edit(suspend=False)
        return True
    if simulation.attempt.number == 2 or not simulation.job.spec.suspend:
        return preempted_then_done(simulation)
    simulation.remove()
    return simulation.attempt.phase is not Phase.SUSPENDED


def replaced_then_done(simulation: Simulation) -> bool:
    """Do what comes next in the life of a job one of whose pods is preempted, and then the one in its place."""
    if kubelets(simulation):
        return True
    if simulation.attempt.phase is not Phase.RUNNING:
        return False
    if len(simulation.attempt.replacements or ()) == 2:
        for index in (0, 1):
            simulation.end(index)
        return True
    gone = {"deleted_at": simulation.now, "grace_ends": simulation.now + GRACE}
    simulation.change(1, disruption="PreemptionByScheduler", **gone)
    simulation.end(1, 143, agent_says(1, None, None, "Terminated"))
    return True


def live(simulation: Simulation, story: Callable[[Simulation], bool]) -> Simulation:
    for _ in range(40):
        simulation.settle()
        if not story(simulation):
            return simulation
    raise AssertionError("the story has no end")


def result(simulation: Simulation) -> dict[str, object]:
    status = simulation.job.status
    return {
        "status": status.model_dump(include={"state", "restarts", "failure"}),
        "annotation": (ended.run_id, ended.outcome) if (ended := simulation.job.ended_run) is not None else None,
        "run": simulation.run.model_dump(include={"restarts", "repeated"}),
        "attempts": [(each.number, each.outcome, each.reason, each.pod, each.rounds) for each in status.attempts],
        "pods": sorted(pod.name for pod in simulation.pods.values() if pod.deleted_at is None),
    }


@pytest.mark.parametrize(
    ("story", "seconds", "least"),
    [(preempted_then_done, 0, 13), (suspended_between_attempts, 0, 13), (replaced_then_done, 300, 12)],
)
def test_every_write_may_be_the_last_of_an_operator(
    story: Callable[[Simulation], bool], seconds: int, least: int
) -> None:
    policy = {"replacementDeadlineSeconds": seconds}
    undisturbed = live(Simulation(job(failurePolicy=policy)), story)
    expected, count = result(undisturbed), len(undisturbed.writes)
    assert count >= least
    assert undisturbed.job.status.state is State.COMPLETE
    told = [event.reason for event in undisturbed.events]
    assert ("Suspended" in told) is (story is suspended_between_attempts)
    for last in range(1, count + 1):
        first = Simulation(job(failurePolicy=policy), writes=Writes(last))
        with pytest.raises(EndedError):
            live(first, story)
        then = Simulation(first.job, first.now, pods=first.pods, objects=first.objects, config_maps=first.config_maps)
        assert result(live(then, story)) == expected, f"after write {last}: {first.writes[-1]}"
