"""A pod of a running attempt is lost: another one takes its place, and the rest of the gang keeps its own."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from deepspeed_operator.api.attempt_status import Phase, Replacement
from deepspeed_operator.api.restarts import Restarts
from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.reconcile.observe.observed import AgentReport, Facts
from deepspeed_operator.reconcile.observe.pods import timestamp
from deepspeed_operator.reconcile.observe.read_as import read_as
from deepspeed_operator.reconcile.observe.rounds import Rounds
from tests.unit.reconcile.simulation import GRACE, Simulation, agent_says, job

NODES = 4


def running(nodes: int = NODES, training: dict[str, Any] | None = None, **policy: Any) -> Simulation:
    given = {"script": "train.py", **(training or {})}
    config = {"train_micro_batch_size_per_gpu": 2}
    return Simulation(job(nodes=nodes, training=given, dsConfig=config, failurePolicy=policy)).train()


def delete(simulation: Simulation, index: int = 1, **fields: Any) -> None:
    """Somebody deletes a pod: its agent ends its ranks, and the others wait."""
    now = simulation.now
    message = agent_says(index, None, None, "Terminated", pod=simulation.pod(index).name)
    simulation.end(index, 143, message, deleted_at=now, grace_ends=now + GRACE, **fields)
    for other in simulation.pods.values():
        if other.attempt == simulation.attempt.number and not other.finished:
            simulation.pods[other.name] = replace(other, ready=False)


def replacements(simulation: Simulation) -> list[Replacement]:
    return list(simulation.attempt.replacements or ())


def restart(simulation: Simulation, number: int = 2, **counts: int) -> None:
    """All pods are there, and the hub has opened this round."""
    simulation.wait(6)
    told = read_as(Rounds, {"number": number, **{"infrastructure": number - 1, **counts}})
    simulation.agent = AgentReport(simulation.attempt.number, simulation.now, rounds=told)
    simulation.run_all()
    for index, record in simulation.attempt.latest_replacements.items():
        simulation.change(index, address=f"10.1.{record.number}.{index}")
    simulation.settle()


def test_another_pod_takes_the_place_of_a_deleted_one_with_four_writes() -> None:
    simulation = running()
    delete(simulation)
    before = len(simulation.writes)
    simulation.settle()
    (record,) = replacements(simulation)
    assert (record.number, record.index, record.pod, record.reason) == (1, 1, "pretrain-1-1", "PodDeleted")
    assert record.fenced, "its container has ended"
    status = simulation.job.status
    assert (status.state, simulation.attempt.phase) == (State.RESTARTING, Phase.REPLACING)
    words = simulation.condition(ConditionType.RUNNING).message
    assert "was deleted while its ranks ran" in words
    assert "Pod pretrain-1-1-r1 takes its place; the other pods wait in theirs, with their GPUs, until" in words
    assert words.endswith("Nothing is to be done.")
    restart(simulation)
    assert simulation.attempt.phase is Phase.RUNNING
    assert simulation.writes[before:] == ["status", "pod pretrain-1-1-r1", "EndpointSlice/pretrain", "status"]
    assert (simulation.job.status.restarts, simulation.attempt.restarts) == (1, Restarts(infrastructure=1))
    assert simulation.attempt.number == 1
    assert simulation.attempt.obstacle is None


def test_the_pod_of_rank_0_is_replaced_as_well_and_its_agent_asked_at_the_new_address() -> None:
    simulation = running()
    delete(simulation, 0)
    simulation.settle()
    assert [each.pod for each in replacements(simulation)] == ["pretrain-1-0"]
    restart(simulation)
    assert simulation.attempt.phase is Phase.RUNNING
    assert simulation.job.status.restarts == 1
    slices = simulation.objects["EndpointSlice", "pretrain"]["endpoints"]
    assert slices[0] | {"hostname": ""} == {"addresses": ["10.1.1.0"], "conditions": {"ready": True}, "hostname": ""}


def test_it_has_the_hostname_of_the_lost_one_and_says_which_one_it_is() -> None:
    simulation = running()
    delete(simulation, 2)
    simulation.settle()
    first, made = simulation.created[2], simulation.created[-1]
    assert made["spec"]["hostname"] == first["spec"]["hostname"] == first["metadata"]["name"]
    index = "deepspeed-operator.dev/index"
    assert made["metadata"]["labels"][index] == first["metadata"]["labels"][index]
    env = {each["name"]: each.get("value") for each in made["spec"]["containers"][0]["env"]}
    assert env["DEEPSPEED_OPERATOR_REPLACEMENT"] == "1"
    assert (env["DEEPSPEED_OPERATOR_INDEX"], env["DEEPSPEED_OPERATOR_FENCED"]) == ("2", "true")


def test_the_addresses_of_the_others_stay_published_until_the_new_one_has_its_own() -> None:
    simulation = running()
    delete(simulation)
    simulation.settle()
    before = simulation.objects["EndpointSlice", "pretrain"]
    assert len(before["endpoints"]) == NODES
    simulation.change(1, address="10.9.9.9", node="node9", phase="Running")
    simulation.settle()
    endpoints = simulation.objects["EndpointSlice", "pretrain"]["endpoints"]
    assert [each["hostname"] for each in endpoints] == [f"pretrain-1-{index}" for index in range(NODES)]
    assert endpoints[1]["addresses"] == ["10.9.9.9"]


def test_what_somebody_deletes_while_the_others_wait_is_made_again() -> None:
    simulation = running()
    delete(simulation)
    simulation.settle()
    simulation.change(1, phase="Running", node="node9", address="10.9.9.9")
    simulation.settle()
    del simulation.objects["Service", "pretrain"]
    simulation.wait(19)
    simulation.settle()
    assert ("Service", "pretrain") not in simulation.objects
    simulation.wait(1)
    simulation.settle()
    assert ("Service", "pretrain") in simulation.objects


def test_the_lost_one_stays_for_its_log() -> None:
    simulation = running()
    simulation.end(1, 137, "")
    simulation.settle()
    restart(simulation)
    assert simulation.attempt.phase is Phase.RUNNING
    assert "pretrain-1-1" in simulation.pods
    assert not [each for each in simulation.writes if each.startswith("delete")]


def test_one_that_a_sidecar_keeps_from_its_end_goes() -> None:
    simulation = running()
    simulation.end(1, 137, "", phase="Running")
    simulation.settle()
    assert "pretrain-1-1-r1" in simulation.pods
    assert "delete pretrain-1-1" in simulation.writes


def test_a_pod_whose_container_was_killed_is_replaced_at_once() -> None:
    simulation = running()
    simulation.end(1, 137, "")
    simulation.settle()
    (record,) = replacements(simulation)
    assert (record.reason, record.fenced) == ("ContainerKilled", True)
    assert "pretrain-1-1-r1" in simulation.pods


def test_of_a_pod_that_went_unseen_nobody_knows_whether_it_has_ended() -> None:
    simulation = running()
    del simulation.pods["pretrain-1-1"]
    simulation.facts = Facts()
    simulation.settle()
    (record,) = replacements(simulation)
    assert (record.reason, record.fenced) == ("PodDeleted", False)


def test_a_pod_on_a_lost_node_is_replaced_once_its_ranks_have_ended_for_sure() -> None:
    simulation = running()
    simulation.change(1, lost_since=simulation.now, ready=False)
    simulation.wait(30)
    simulation.change(
        1, deleted_at=simulation.now, grace_ends=simulation.now + GRACE, disruption="DeletionByTaintManager"
    )
    simulation.settle()
    assert not replacements(simulation)
    simulation.wait(30)
    simulation.settle()
    (record,) = replacements(simulation)
    assert (record.reason, record.node, record.fenced) == ("NodeLost", "node1", False)
    assert "pretrain-1-1-r1" in simulation.pods
    restart(simulation)
    assert simulation.attempt.phase is Phase.RUNNING


def test_each_loss_has_its_own_number_and_a_replacement_may_be_lost_as_well() -> None:
    simulation = running()
    delete(simulation)
    simulation.settle()
    delete(simulation, 1)
    simulation.settle()
    delete(simulation, 3)
    simulation.settle()
    assert [(each.number, each.index, each.pod) for each in replacements(simulation)] == [
        (1, 1, "pretrain-1-1"),
        (2, 1, "pretrain-1-1-r1"),
        (3, 3, "pretrain-1-3"),
    ]
    restart(simulation)
    assert simulation.attempt.phase is Phase.RUNNING
    assert sorted(pod.name for pod in simulation.pods.values() if not pod.finished) == [
        "pretrain-1-0",
        "pretrain-1-1-r2",
        "pretrain-1-2",
        "pretrain-1-3-r3",
    ]


def test_without_its_ranks_in_time_a_new_attempt_begins_and_says_why() -> None:
    simulation = running(replacementDeadlineSeconds=120)
    delete(simulation)
    simulation.settle()
    simulation.change(1, unschedulable="0/9 nodes are available: 9 Insufficient nvidia.com/gpu.")
    simulation.settle()
    assert "9 Insufficient nvidia.com/gpu" in simulation.condition(ConditionType.RUNNING).message
    simulation.wait(120)
    simulation.settle()
    assert simulation.attempt.phase is Phase.BACKING_OFF
    (ended,) = simulation.job.status.attempts
    assert (ended.reason, ended.pod) == ("PodDeleted", "pretrain-1-1")
    assert "did not run with a pod in its place within 120 s" in (ended.message or "")
    simulation.remove()
    simulation.wait(400)
    simulation.settle()
    assert (simulation.attempt.number, simulation.attempt.replacements) == (2, None)
    simulation.train()
    assert simulation.pod(1).name == "pretrain-2-1"


def test_where_the_agents_end_the_attempt_it_ends_with_why_the_pod_was_lost() -> None:
    simulation = running()
    delete(simulation)
    simulation.settle()
    for index in (0, 1, 2, 3):
        simulation.end(index, 143, agent_says(1, None, None, "Terminated", pod="pretrain-1-1", node="node1"))
    simulation.settle()
    assert simulation.attempt.phase is Phase.BACKING_OFF
    (ended,) = simulation.job.status.attempts
    assert (ended.reason, ended.pod) == ("PodDeleted", "pretrain-1-1")


def test_the_restart_counts_once_whether_an_agent_tells_of_it_at_once_or_later() -> None:
    simulation = running()
    delete(simulation)
    simulation.settle()
    simulation.wait(6)
    simulation.run_all()
    simulation.settle()
    assert (simulation.attempt.phase, simulation.job.status.restarts) == (Phase.RUNNING, 1)
    told = read_as(Rounds, {"number": 2, "infrastructure": 1})
    simulation.agent = AgentReport(simulation.attempt.number, simulation.now, rounds=told)
    simulation.wait(600)
    simulation.settle()
    assert (simulation.job.status.restarts, simulation.attempt.round) == (1, 2)


def test_refused_replacements_are_tried_again_and_the_others_stay() -> None:
    simulation = running()
    simulation.refuse_pods = "exceeded quota: gpus"
    delete(simulation)
    simulation.settle()
    assert "exceeded quota: gpus" in simulation.condition(ConditionType.RUNNING).message
    assert not [each for each in simulation.writes if each.startswith("delete")]
    simulation.refuse_pods = None
    simulation.wait(11)
    simulation.settle()
    restart(simulation)
    assert simulation.attempt.phase is Phase.RUNNING


def test_at_each_point_another_operator_goes_on() -> None:
    """Whatever was written or made until then, the numbers are the same, and nothing is made twice."""
    made: list[list[str]] = []
    for killed_after in range(6):
        simulation = running()
        before = len(simulation.writes)
        delete(simulation)
        for _ in range(killed_after):
            simulation.step()
        simulation.facts = Facts()
        simulation.ensured.clear()
        simulation.settle()
        restart(simulation)
        assert simulation.attempt.phase is Phase.RUNNING
        assert [each.number for each in replacements(simulation)] == [1]
        made.append([each for each in simulation.writes[before:] if each != "status"])
    assert made == [["pod pretrain-1-1-r1", "EndpointSlice/pretrain"]] * 6


def test_a_suspended_run_makes_none_and_ends_all() -> None:
    simulation = running()
    delete(simulation)
    simulation.step()
    assert replacements(simulation)
    simulation.edit(suspend=True)
    simulation.settle()
    assert "pretrain-1-1-r1" not in simulation.pods
    assert simulation.attempt.phase is Phase.STOPPING
    simulation.remove()
    simulation.settle()
    assert simulation.attempt.phase is Phase.SUSPENDED


def test_the_deadline_counts_from_the_latest_loss() -> None:
    simulation = running(replacementDeadlineSeconds=100)
    delete(simulation)
    simulation.settle()
    simulation.wait(90)
    delete(simulation, 2)
    simulation.settle()
    until = timestamp(simulation.now + timedelta(seconds=100))
    assert f"until {until} at the latest" in simulation.condition(ConditionType.RUNNING).message
