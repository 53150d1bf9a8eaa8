"""An operator that ends after any of its writes for a job in a queue: the next one brings it to the same end."""

import pytest

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.status import State
from tests.unit.reconcile.simulation import Simulation, job
from tests.unit.reconcile.test_queue import FLAVORS, NAME, QUEUED, admit, condition, evict
from tests.unit.reconcile.test_restarted_operator import EndedError, Writes, kubelets, live, result


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


def test_every_write_may_be_the_last_of_an_operator() -> None:
    undisturbed = live(Simulation(job(**QUEUED), of_queue=dict(FLAVORS)), evicted_then_done)
    expected, count = result(undisturbed), len(undisturbed.writes)
    assert undisturbed.job.status.state is State.COMPLETE
    assert condition(undisturbed, "Finished") == ("True", "Succeeded")
    assert count >= 20
    for last in range(1, count + 1):
        first = Simulation(job(**QUEUED), of_queue=dict(FLAVORS), writes=Writes(last))
        with pytest.raises(EndedError):
            live(first, evicted_then_done)
        then = Simulation(first.job, first.now, pods=first.pods, objects=first.objects, config_maps=first.config_maps)
        then.workloads, then.of_queue = first.workloads, dict(FLAVORS)
        assert result(live(then, evicted_then_done)) == expected, f"after write {last}: {first.writes[-1]}"
        assert condition(then, "Finished") == ("True", "Succeeded"), f"after write {last}: {first.writes[-1]}"
        assert list(then.workloads) == [NAME]
