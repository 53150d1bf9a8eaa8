"""Jobs whose Workload somebody else has made, and names by a label: it is adopted, and never deleted."""

from typing import Any

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import ConditionType
from tests.unit.reconcile.simulation import Simulation, job
from tests.unit.reconcile.test_queue import FLAVORS, NAME, admit, condition, evict, has_quota, trained

LABELS = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/prebuilt-workload-name": NAME}


def labelled(simulation: Simulation, labels: dict[str, str]) -> None:
    metadata = simulation.job.metadata.model_copy(update={"labels": labels})
    simulation.job = simulation.job.model_copy(update={"metadata": metadata})


def dispatched(**metadata: Any) -> Simulation:
    """A job whose Workload is there, with this metadata, and waits."""
    simulation = Simulation(job(), of_queue=dict(FLAVORS))
    labelled(simulation, LABELS)
    simulation.workloads[NAME] = prebuilt_workload(NAME, **metadata)
    simulation.settle()
    return simulation


def prebuilt_workload(name: str, **metadata: Any) -> dict[str, Any]:
    found = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": "1", **metadata}
    return {"metadata": found, "spec": {"podSets": [{"name": "ranks", "count": 2}]}}


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
    simulation.workloads[NAME] = prebuilt_workload(NAME)
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


def prebuilt(simulation: Simulation, name: str) -> None:
    """Somebody makes a Workload of this name, and the label of the job names it."""
    simulation.workloads[name] = prebuilt_workload(name)
    labelled(simulation, {**LABELS, "kueue.x-k8s.io/prebuilt-workload-name": name})


def ended(simulation: Simulation, name: str) -> str | None:
    """Return the reason with which a Workload is finished; None: it is not."""
    conditions = simulation.workloads[name].get("status", {}).get("conditions", [])
    return next((each["reason"] for each in conditions if each["type"] == "Finished"), None)


def replaced(simulation: Simulation, **spec: Any) -> None:
    """Another run takes the place of one whose pods run, and they end."""
    simulation.edit(runId="b", **spec)
    simulation.settle()
    simulation.remove()
    simulation.settle()


def test_a_run_with_a_prebuilt_workload_gives_back_what_the_run_before_had_of_its_own() -> None:
    simulation = trained()
    prebuilt(simulation, "theirs")
    simulation.edit(runId="b")
    simulation.settle()
    assert has_quota(simulation), "the pods of the run before still end"
    simulation.remove()
    simulation.settle()
    assert list(simulation.workloads) == ["theirs"]
    queue = simulation.job.status.queue
    assert queue is not None
    assert (queue.workload, queue.prebuilt, queue.former) == ("theirs", True, None)
    assert simulation.workloads["theirs"]["metadata"]["ownerReferences"][0]["uid"] == "job-1"


def test_a_run_without_a_queue_gives_back_a_prebuilt_workload_and_leaves_it_there() -> None:
    simulation = dispatched()
    admit(simulation)
    simulation.train()
    labelled(simulation, {})
    simulation.edit(runId="b")
    simulation.settle()
    assert ended(simulation, NAME) is None, "the pods of the run before still end"
    simulation.remove()
    simulation.settle()
    assert ended(simulation, NAME) == "OutOfSync"
    simulation.train()
    assert simulation.job.status.queue is not None
    assert simulation.job.status.queue.former is None


def test_another_prebuilt_workload_gives_back_the_one_before() -> None:
    simulation = dispatched()
    admit(simulation)
    simulation.train()
    prebuilt(simulation, "theirs")
    replaced(simulation)
    assert (ended(simulation, NAME), ended(simulation, "theirs")) == ("OutOfSync", None)
    assert simulation.attempt.phase is Phase.QUEUED


def test_a_run_with_a_workload_of_its_own_gives_a_prebuilt_one_back() -> None:
    simulation = Simulation(job(), of_queue=dict(FLAVORS))
    prebuilt(simulation, "theirs")
    simulation.settle()
    admit(simulation, name="theirs")
    simulation.train()
    labelled(simulation, {"kueue.x-k8s.io/queue-name": "team"})
    replaced(simulation)
    assert ended(simulation, "theirs") == "OutOfSync"
    assert sorted(simulation.workloads) == [NAME, "theirs"]
    admit(simulation)
    simulation.train()


def test_a_prebuilt_workload_that_has_the_name_of_ours_is_not_deleted_for_ours() -> None:
    annotations = {"deepspeed-operator.dev/content-digest": "of the cluster that it was copied from"}
    simulation = dispatched(annotations=annotations)
    admit(simulation)
    simulation.train()
    labelled(simulation, {"kueue.x-k8s.io/queue-name": "team"})
    replaced(simulation)
    assert simulation.workloads[NAME]["metadata"]["uid"] == f"uid-{NAME}"
    assert simulation.condition(ConditionType.READY).reason == Reason.NAME_CONFLICT


def test_a_run_that_is_replaced_while_the_one_before_still_ends_forgets_neither() -> None:
    simulation = trained()
    prebuilt(simulation, "theirs")
    simulation.edit(runId="b")
    simulation.settle()
    labelled(simulation, {})
    simulation.edit(runId="c", scheduling=None)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    assert (list(simulation.workloads), ended(simulation, "theirs")) == (["theirs"], None)
    simulation.train()
