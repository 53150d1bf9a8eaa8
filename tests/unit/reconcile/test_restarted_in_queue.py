"""An operator that ends after any of its writes for a job in a queue: the next one brings it to the same end."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.queueing import LABEL_PREBUILT
from deepspeed_operator.api.status import State
from tests.unit.reconcile.simulation import Simulation, agent_says, job
from tests.unit.reconcile.test_queue import FLAVORS, NAME, QUEUED, admit, condition, evict
from tests.unit.reconcile.test_queue_partial import ELASTIC
from tests.unit.reconcile.test_queue_prebuilt import ended, labelled, prebuilt_workload
from tests.unit.reconcile.test_restarted_operator import EndedError, Writes, kubelets, live, result

THEIRS: Final = "theirs"


def evicted_then_done(simulation: Simulation) -> bool:
    """Do what comes next in the life of a job whose first attempt is evicted."""
    if kubelets(simulation):
        return True
    reserved = NAME in simulation.workloads and condition(simulation, "QuotaReserved")[0] == "True"
    if simulation.attempt.phase is Phase.QUEUED and not reserved:
        admit(simulation)
        return True
    if simulation.attempt.phase is not Phase.RUNNING or any(pod.finished for pod in simulation.pods.values()):
        return False
    if simulation.attempt.number == 1:
        evict(simulation)
    else:
        for index in (0, 1):
            simulation.end(index)
    return True


def prebuilt_next(simulation: Simulation) -> bool:
    """Do what comes next in the life of a job whose second run has a Workload that somebody else has made."""
    if kubelets(simulation):
        return True
    reserved = bool(simulation.workloads.get(THEIRS, {}).get("status", {}).get("admission"))
    if simulation.attempt.phase is Phase.RUNNING and simulation.job.spec.run_id:
        for index in (0, 1):
            simulation.end(index)
        return True
    if simulation.attempt.phase is Phase.RUNNING:
        simulation.workloads.setdefault(THEIRS, prebuilt_workload(THEIRS))
        labelled(simulation, {LABEL_PREBUILT: THEIRS})
        simulation.edit(runId="b")
        return True
    if simulation.attempt.phase is Phase.QUEUED and not reserved:
        admit(simulation, name=THEIRS if simulation.job.spec.run_id else NAME)
        return True
    return False


def granted_fewer(first: int, then: int) -> Callable[[Simulation], bool]:
    """Return the life of a job that is granted so many nodes, fails, and is granted so many if it asks again."""

    def story(simulation: Simulation) -> bool:
        if kubelets(simulation):
            return True
        if simulation.attempt.phase is Phase.BACKING_OFF:
            simulation.wait(60)
            return True
        reserved = NAME in simulation.workloads and condition(simulation, "QuotaReserved")[0] == "True"
        if simulation.attempt.phase is Phase.QUEUED and not reserved:
            admit(simulation, count=first if simulation.attempt.number == 1 else then)
            return True
        number, pods = simulation.attempt.number, simulation.pods.values()
        if simulation.attempt.phase is not Phase.RUNNING or any(pod.finished for pod in pods if pod.attempt == number):
            return False
        fails = number == 1
        for index in range(simulation.run.world.nodes):
            simulation.end(index, int(fails), agent_says(0, 0, 1, "NcclNetwork") if fails else "")
        return True

    return story


def restarted_after_each_write(story: Callable[[Simulation], bool], **spec: Any) -> Iterator[tuple[Simulation, str]]:
    """Yield what comes of a life, undisturbed and with an operator that ends after each write, and which one it was."""
    undisturbed = live(Simulation(job(**QUEUED, **spec), of_queue=dict(FLAVORS)), story)
    yield undisturbed, "no write"
    for last in range(1, len(undisturbed.writes) + 1):
        first = Simulation(job(**QUEUED, **spec), of_queue=dict(FLAVORS), writes=Writes(last))
        with pytest.raises(EndedError):
            live(first, story)
        then = Simulation(first.job, first.now, pods=first.pods, objects=first.objects, config_maps=first.config_maps)
        then.workloads, then.of_queue = first.workloads, dict(FLAVORS)
        yield live(then, story), f"write {last}: {first.writes[-1]}"


def test_every_write_may_be_the_last_of_an_operator() -> None:
    lives = restarted_after_each_write(evicted_then_done)
    undisturbed, _ = next(lives)
    assert undisturbed.job.status.state is State.COMPLETE
    assert condition(undisturbed, "Finished") == ("True", "Succeeded")
    assert len(undisturbed.writes) >= 20
    for then, after in lives:
        assert result(then) == result(undisturbed), after
        assert condition(then, "Finished") == ("True", "Succeeded"), after
        assert list(then.workloads) == [NAME]


def test_no_workload_is_forgotten_for_one_that_somebody_else_has_made() -> None:
    for then, after in restarted_after_each_write(prebuilt_next):
        assert then.job.status.state is State.COMPLETE, after
        assert (list(then.workloads), ended(then, THEIRS)) == ([THEIRS], "Succeeded"), after


@pytest.mark.parametrize(("first", "then", "used"), [(2, 4, [2, 4]), (3, 3, [2, 2]), (4, 2, [4, 4])])
def test_a_grant_of_fewer_nodes_survives_an_operator(first: int, then: int, used: list[int]) -> None:
    for life, after in restarted_after_each_write(granted_fewer(first, then), **ELASTIC):
        assert life.job.status.state is State.COMPLETE, after
        assert [each.nodes for each in life.job.status.attempts] == used, after
        assert condition(life, "Finished") == ("True", "Succeeded"), after
