"""Jobs whose Workload somebody else has made, and names by a label: it is adopted, and never deleted."""

from typing import Any

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import ConditionType
from tests.unit.reconcile.simulation import Simulation, job
from tests.unit.reconcile.test_queue import FLAVORS, NAME, admit, condition, evict, has_quota

LABELS = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/prebuilt-workload-name": NAME}


def labelled(simulation: Simulation, labels: dict[str, str]) -> None:
    metadata = simulation.job.metadata.model_copy(update={"labels": labels})
    simulation.job = simulation.job.model_copy(update={"metadata": metadata})


def dispatched(**metadata: Any) -> Simulation:
    """A job whose Workload is there, with this metadata, and waits."""
    simulation = Simulation(job(), of_queue=dict(FLAVORS))
    labelled(simulation, LABELS)
    found = {"name": NAME, "namespace": "ml", "uid": "w", "resourceVersion": "1", **metadata}
    simulation.workloads[NAME] = {"metadata": found, "spec": {"podSets": [{"name": "ranks", "count": 2}]}}
    simulation.settle()
    return simulation


def suspended() -> Simulation:
    simulation = dispatched()
    admit(simulation)
    simulation.train()
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    assert simulation.attempt.phase is Phase.SUSPENDED
    return simulation


def test_a_workload_that_somebody_else_has_made_is_adopted() -> None:
    simulation = Simulation(job(), of_queue=dict(FLAVORS))
    labelled(simulation, LABELS)
    simulation.settle()
    assert "which is not there" in simulation.condition(ConditionType.READY).message
    found = {"name": NAME, "namespace": "ml", "uid": "w", "resourceVersion": "1"}
    simulation.workloads[NAME] = {"metadata": found, "spec": {"podSets": [{"name": "ranks", "count": 2}]}}
    simulation.wait(30)
    simulation.settle()
    (owner,) = simulation.workloads[NAME]["metadata"]["ownerReferences"]
    assert owner["uid"] == "job-1"
    admit(simulation)
    simulation.train()
    for index in (0, 1):
        simulation.end(index)
    simulation.settle()
    assert condition(simulation, "Finished") == ("True", "Succeeded")


def test_one_that_is_another_jobs_is_told_as_that() -> None:
    labels = {"deepspeed-operator.dev/job-name": "another"}
    simulation = dispatched(labels=labels, ownerReferences=[{"uid": "another-1"}])
    for _ in range(3):
        simulation.wait(30)
        simulation.settle()
    assert simulation.condition(ConditionType.READY).reason == Reason.NAME_CONFLICT
    assert "not owned by this job" in simulation.condition(ConditionType.READY).message


def test_a_suspended_job_keeps_its_quota_until_it_is_evicted() -> None:
    simulation = suspended()
    assert has_quota(simulation)
    evict(simulation)
    simulation.settle()
    assert not has_quota(simulation), "who preempts it waits for that"
    assert condition(simulation, "QuotaReserved") == ("False", "Pending")


def test_a_job_whose_label_is_taken_away_goes_on_with_the_same_workload() -> None:
    simulation = suspended()
    labelled(simulation, {"kueue.x-k8s.io/queue-name": "team"})
    simulation.edit(suspend=False)
    simulation.settle()
    assert simulation.job.status.queue is not None
    assert simulation.job.status.queue.workload == NAME
    simulation.train()
    assert simulation.attempt.phase is Phase.RUNNING


def test_one_that_is_finished_is_not_deleted_for_another_run() -> None:
    simulation = dispatched()
    admit(simulation)
    simulation.train()
    for index in (0, 1):
        simulation.end(index)
    simulation.settle()
    simulation.edit(runId="again")
    for _ in range(3):
        simulation.wait(30)
        simulation.settle()
    assert NAME in simulation.workloads
    assert "is finished: name another one" in simulation.condition(ConditionType.READY).message
