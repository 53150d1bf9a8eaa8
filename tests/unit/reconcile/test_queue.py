"""Jobs that ask for a queue: one Workload stands for all pods, which are made when it is admitted, and end with it."""

from typing import Any

import pytest

from deepspeed_operator.api.attempt_status import AttemptOutcome, Phase
from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.reconcile.observe.observed import Facts
from tests.unit.reconcile.simulation import Simulation, agent_says, job

NAME = "pretrain-0-job-1"
FLAVOR: dict[str, Any] = {
    "spec": {
        "nodeLabels": {"pool": "h100"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
}
QUEUED: dict[str, Any] = {"scheduling": {"queueName": "team"}}
FLAVORS = {("ResourceFlavor", "h100"): FLAVOR}


def queued(**spec: Any) -> Simulation:
    """A job whose Workload waits."""
    simulation = Simulation(job(**{**QUEUED, **spec}), of_queue=dict(FLAVORS))
    simulation.settle()
    return simulation


def tell(simulation: Simulation, *conditions: tuple[str, str, str], name: str = NAME, **status: Any) -> None:
    """Do as Kueue does: set conditions by type, status and reason, and other fields of the Workload's status."""
    known = simulation.workloads[name]
    before = {each["type"]: each for each in known.get("status", {}).get("conditions", [])}
    time = "2026-01-01T00:00:00Z"
    for kind, value, reason in conditions:
        words = f"{reason} in words"
        before[kind] = {"type": kind, "status": value, "reason": reason, "message": words, "lastTransitionTime": time}
    metadata = {**known["metadata"], "resourceVersion": f"{int(known['metadata']['resourceVersion']) + 1}"}
    after = {**known.get("status", {}), **status, "conditions": list(before.values())}
    simulation.workloads[name] = {**known, "metadata": metadata, "status": after}


def admit(simulation: Simulation, *, name: str = NAME, count: int | None = None, **status: Any) -> None:
    """Admit the Workload with so many pods; None: all that it asks for."""
    (asked,) = simulation.workloads[name]["spec"]["podSets"]
    granted = asked["count"] if count is None else count
    assignment = {"name": "ranks", "count": granted, "flavors": {"nvidia.com/gpu": "h100", "cpu": "h100"}}
    admission = {"clusterQueue": "cq", "podSetAssignments": [assignment]}
    news = [("QuotaReserved", "True", "QuotaReserved"), ("Admitted", "True", "Admitted")]
    old = {each["type"] for each in simulation.workloads[name].get("status", {}).get("conditions", [])}
    news += [(kind, "False", "QuotaReserved") for kind in ("Evicted", "Preempted") if kind in old]
    tell(simulation, *news, name=name, **{"admission": admission, **status})


def evict(simulation: Simulation, reason: str = "Preempted") -> None:
    tell(simulation, ("Evicted", "True", reason))


def condition(simulation: Simulation, kind: str) -> tuple[str, str]:
    """Return a condition of the Workload: its status and reason."""
    conditions = simulation.workloads[NAME].get("status", {}).get("conditions", [])
    found = [each for each in conditions if each["type"] == kind]
    assert len(found) <= 1
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


def trained(**spec: Any) -> Simulation:
    simulation = queued(**spec)
    admit(simulation)
    return simulation.train()


def has_quota(simulation: Simulation) -> bool:
    return simulation.workloads[NAME]["status"].get("admission") is not None


def test_a_queued_job_is_one_object_and_no_pod() -> None:
    simulation = queued()
    assert simulation.writes.count("status") <= 2
    assert [write for write in simulation.writes if write != "status"] == [f"Workload/{NAME}"]
    assert (simulation.job.status.state, simulation.attempt.phase) == (State.QUEUED, Phase.QUEUED)
    assert (simulation.pods, simulation.objects) == ({}, {})
    assert simulation.condition(ConditionType.READY).status == "True"


def test_the_workload_asks_for_what_the_pods_will_ask_for() -> None:
    resources = {"limits": {"nvidia.com/gpu": 2}}
    spec = {"nodeSelector": {"zone": "a"}, "containers": [{"name": "trainer", "resources": resources}]}
    simulation = queued(template={"spec": spec}, slotsPerNode=2)
    workload = simulation.workloads[NAME]
    (pod_set,) = workload["spec"]["podSets"]
    assert (workload["spec"]["queueName"], pod_set["count"]) == ("team", 2)
    (owner,) = workload["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("job-1", True)
    admit(simulation)
    simulation.settle()
    asked, made = pod_set["template"]["spec"], simulation.created[0]["spec"]
    assert asked["nodeSelector"] == {"zone": "a"}
    assert [each["resources"] for each in asked["containers"]] == [each["resources"] for each in made["containers"]]
    assert "env" not in asked["containers"][0]
    assert asked["tolerations"] == [each for each in made["tolerations"] if each not in FLAVOR["spec"]["tolerations"]]


def test_pods_are_made_when_it_is_admitted_and_go_where_the_quota_is() -> None:
    simulation = queued()
    simulation.wait(10_000)  # no deadline counts
    tell(simulation, ("QuotaReserved", "False", "Pending"))
    simulation.settle()
    assert simulation.pods == {}
    assert "Pending in words" in simulation.condition(ConditionType.READY).message
    admit(simulation)
    simulation.settle()
    assert len(simulation.created) == 2
    for pod in simulation.created:
        assert pod["spec"]["nodeSelector"]["pool"] == "h100"
        assert FLAVOR["spec"]["tolerations"][0] in pod["spec"]["tolerations"]
    assert simulation.attempt.admitted_time == "2026-01-01T02:46:40Z"
    simulation.train()
    assert condition(simulation, "PodsReady") == ("True", "Started")


def test_admission_checks_add_to_the_pods() -> None:
    simulation = queued()
    tell(simulation, ("QuotaReserved", "True", "QuotaReserved"))
    simulation.settle()
    assert simulation.pods == {}
    update = {"name": "ranks", "nodeSelector": {"request": "a"}, "annotations": {"consumes": "a"}, "labels": {"b": "c"}}
    admit(simulation, admissionChecks=[{"name": "capacity", "state": "Ready", "podSetUpdates": [update]}])
    simulation.settle()
    pod = simulation.created[0]
    assert pod["spec"]["nodeSelector"] == {"pool": "h100", "request": "a"}
    assert (pod["metadata"]["annotations"]["consumes"], pod["metadata"]["labels"]["b"]) == ("a", "c")


@pytest.mark.parametrize("reason", ["Preempted", "PodsReadyTimeout", "ClusterQueueStopped", "Deactivated"])
def test_an_evicted_job_ends_with_its_grace_gives_its_quota_back_and_waits_again(reason: str) -> None:
    simulation = trained()
    evict(simulation, reason)
    simulation.settle()
    assert (simulation.job.status.state, simulation.attempt.phase) == (State.RESTARTING, Phase.EVICTING)
    assert all(pod.deleted_at is not None for pod in simulation.pods.values())
    assert f"{reason} in words" in simulation.condition(ConditionType.READY).message
    assert has_quota(simulation), "ranks may still save"
    simulation.wait(20)
    simulation.remove()
    simulation.settle()
    assert not has_quota(simulation)
    assert condition(simulation, "QuotaReserved") == ("False", "Pending")
    assert condition(simulation, "Admitted")[0] == condition(simulation, "PodsReady")[0] == "False"
    assert condition(simulation, "Requeued") == ("True" if reason == "Preempted" else "False", reason)
    assert (simulation.attempt.number, simulation.attempt.phase) == (2, Phase.QUEUED)
    (ended,) = simulation.job.status.attempts
    assert (ended.outcome, ended.reason, ended.category) == (AttemptOutcome.EVICTED, "QuotaReclaimed", "Disruption")
    restarts = simulation.run.restarts
    assert restarts is not None
    assert (restarts.user, restarts.infrastructure, restarts.uncounted) == (0, 0, 1)
    admit(simulation)
    simulation.settle()
    simulation.train()
    assert simulation.attempt.number == 2


def test_a_result_that_comes_with_the_eviction_wins() -> None:
    simulation = trained()
    evict(simulation)
    for index in (0, 1):
        simulation.end(index)
    simulation.settle()
    assert simulation.job.status.state is State.COMPLETE
    assert condition(simulation, "Finished") == ("True", "Succeeded")


def test_a_workload_that_was_deleted_ends_the_pods_and_is_made_again() -> None:
    simulation = trained()
    del simulation.workloads[NAME]
    simulation.settle()
    assert simulation.attempt.phase is Phase.EVICTING
    assert "was deleted" in simulation.condition(ConditionType.READY).message
    simulation.remove()
    simulation.settle()
    assert (simulation.attempt.phase, list(simulation.workloads)) == (Phase.QUEUED, [NAME])


def test_restarts_and_replacements_keep_the_quota() -> None:
    policy = {"replacementDeadlineSeconds": 300, "backoffSeconds": 1}
    simulation = trained(nodes=3, failurePolicy=policy)
    simulation.pods.pop("pretrain-1-1")
    simulation.settle()
    assert simulation.attempt.phase is Phase.REPLACING
    assert condition(simulation, "PodsReady") == ("False", "WaitForRecovery")
    (replacement,) = [pod for pod in simulation.created if pod["metadata"]["name"].endswith("-r1")]
    assert replacement["spec"]["nodeSelector"]["pool"] == "h100"
    simulation.run_all()
    simulation.settle()
    assert condition(simulation, "PodsReady") == ("True", "Started")
    for index in range(3):
        simulation.end(index, 1, agent_says(0, 0, 1, "NcclNetwork"))
    simulation.settle()
    assert simulation.attempt.phase is Phase.BACKING_OFF
    simulation.wait(60)
    simulation.settle()
    assert (simulation.attempt.number, simulation.attempt.phase) == (2, Phase.STARTING)
    assert has_quota(simulation)
    assert [write for write in simulation.writes if write == f"Workload/{NAME}"] == [f"Workload/{NAME}"]


@pytest.mark.parametrize(("exit_code", "reason"), [(0, "Succeeded"), (7, "Failed")])
def test_the_queue_is_told_how_the_run_has_ended_and_then_nothing_more(exit_code: int, reason: str) -> None:
    simulation = trained()
    for index in (0, 1):
        simulation.end(index, exit_code, agent_says(0, 0, exit_code) if exit_code else "")
    simulation.settle()
    assert condition(simulation, "Finished") == ("True", reason)
    queue = simulation.job.status.queue
    assert queue is not None
    assert (queue.name, queue.workload) == ("team", None)
    writes = len(simulation.writes)
    simulation.facts, simulation.watched = Facts(), False  # another operator
    outcome = simulation.settle()
    assert (len(simulation.writes), outcome.questions) == (writes, ())


def test_a_suspended_job_is_out_of_the_queue_at_once() -> None:
    simulation = queued()
    simulation.edit(suspend=True)
    simulation.settle()
    assert (simulation.job.status.state, simulation.workloads) == (State.SUSPENDED, {})
    simulation.edit(suspend=False)
    simulation.settle()
    assert (simulation.job.status.state, list(simulation.workloads)) == (State.QUEUED, [NAME])


def test_a_running_job_that_is_suspended_keeps_its_quota_until_its_pods_have_ended() -> None:
    simulation = trained()
    simulation.edit(suspend=True)
    simulation.settle()
    assert has_quota(simulation)
    simulation.remove()
    simulation.settle()
    assert (simulation.job.status.state, simulation.workloads) == (State.SUSPENDED, {})


def test_another_run_waits_in_the_queue_anew() -> None:
    simulation = trained()
    simulation.edit(runId="b")
    simulation.settle()
    assert has_quota(simulation), "the pods of the run before still end"
    simulation.remove()
    simulation.settle()
    assert simulation.job.status.state is State.QUEUED
    assert "status" not in simulation.workloads[NAME], "it is another Workload"


def test_another_run_without_a_queue_leaves_it() -> None:
    simulation = trained()
    simulation.edit(runId="b", scheduling=None)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    assert simulation.workloads == {}
    assert simulation.attempt.phase is Phase.STARTING


def test_a_queued_job_whose_template_changes_asks_for_what_it_says_now() -> None:
    simulation = queued()
    simulation.edit(template={"spec": {"containers": [{"name": "trainer"}], "nodeSelector": {"zone": "b"}}})
    simulation.settle()
    (pod_set,) = simulation.workloads[NAME]["spec"]["podSets"]
    assert pod_set["template"]["spec"]["nodeSelector"] == {"zone": "b"}


def test_priorities_have_their_classes_value() -> None:
    scheduling = {"queueName": "team", "priorityClassName": "urgent"}
    simulation = Simulation(job(scheduling=scheduling), of_queue={("WorkloadPriorityClass", "urgent"): {"value": 7}})
    simulation.settle()
    spec = simulation.workloads[NAME]["spec"]
    assert spec["priority"] == 7
    named = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "urgent"}
    assert spec["priorityClassRef"] == named


def test_a_priority_class_that_is_missing_is_said() -> None:
    simulation = Simulation(job(scheduling={"queueName": "team", "priorityClassName": "urgent"}))
    simulation.settle()
    assert simulation.workloads == {}
    assert "WorkloadPriorityClass urgent is not there" in simulation.condition(ConditionType.READY).message


def test_the_labels_of_kueue_say_the_same() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": "urgent", "other": "x"}
    by_label = job()
    metadata = type(by_label.metadata).model_validate({**by_label.metadata.model_dump(), "labels": labels})
    simulation = Simulation(by_label.model_copy(update={"metadata": metadata}))
    simulation.of_queue["WorkloadPriorityClass", "urgent"] = {"value": 7}
    simulation.settle()
    assert simulation.workloads[NAME]["spec"]["queueName"] == "team"
    assert "other" not in simulation.job.metadata.labels


def test_a_workload_of_somebody_else_is_left_alone() -> None:
    simulation = Simulation(job(**QUEUED))
    found = {"name": NAME, "namespace": "ml", "uid": "w", "resourceVersion": "1", "ownerReferences": [{"uid": "x"}]}
    simulation.workloads[NAME] = {"metadata": found, "spec": {"podSets": []}}
    simulation.settle()
    assert simulation.job.status.state is State.INVALID
    assert simulation.workloads[NAME]["metadata"] is found


def test_a_job_without_a_queue_asks_nobody() -> None:
    simulation = Simulation(job(), queue_problem="nobody may ask").train()
    assert simulation.job.status.queue is None
    assert simulation.facts.workload is None


def test_the_first_words_of_the_queue_are_written_at_once() -> None:
    simulation = queued()
    assert "has not said anything" in simulation.condition(ConditionType.READY).message
    tell(simulation, ("QuotaReserved", "False", "Pending"))
    simulation.settle()
    assert "Pending in words" in simulation.condition(ConditionType.READY).message


def test_other_words_of_the_queue_are_written_once_a_minute() -> None:
    simulation = queued()
    tell(simulation, ("QuotaReserved", "False", "Pending"))
    simulation.wait(61)
    simulation.settle()
    writes = len(simulation.writes)
    for number in range(5):
        simulation.wait(5)
        tell(simulation, ("QuotaReserved", "False", f"Pending{number}"))
        simulation.settle()
    assert len(simulation.writes) == writes
    simulation.wait(40)
    simulation.settle()
    assert len(simulation.writes) == writes + 1


def test_a_run_that_ends_with_a_lost_node_gives_its_quota_back() -> None:
    simulation = trained(failurePolicy={"maxInfrastructureRestarts": 0, "replacementDeadlineSeconds": 0})
    lost = {"lost_since": simulation.now, "ready": False, "deleted_at": simulation.now, "grace_ends": simulation.now}
    simulation.change(1, **lost, disruption="DeletionByTaintManager")
    simulation.end(0, 1)
    simulation.settle()
    for _ in range(20):
        simulation.wait(60)
        simulation.settle()
    assert simulation.job.status.state is State.FAILED
    assert condition(simulation, "Finished") == ("True", "Failed")
