"""Pods that do not come up: what was deleted is made again, and what their volumes may lack is named."""

from dataclasses import replace
from typing import Any

import pytest

from deepspeed_operator.api.status import ConditionType
from deepspeed_operator.reconcile.actions import ReadConfigMap
from deepspeed_operator.reconcile.observe.observed import AgentReport, Facts
from tests.unit.reconcile.simulation import Simulation, job
from tests.unit.reconcile.test_life_of_a_job import running, started

CONFIG_MAP, SERVICE, SLICE = ("ConfigMap", "pretrain-1-job-1"), ("Service", "pretrain"), ("EndpointSlice", "pretrain")


def being_set_up(*volumes: dict[str, Any], **spec: Any) -> Simulation:
    """A job whose pods have a node that says nothing but that they are not ready to start."""
    containers = [{"name": "trainer"}]
    simulation = Simulation(job(template={"spec": {"volumes": list(volumes), "containers": containers}}, **spec))
    simulation.config_maps["code"] = {"train.py": ""}
    simulation.settle()
    for index in range(2):
        simulation.change(index, node=f"node{index}", set_up=False)
    simulation.settle()
    return simulation


def wait(simulation: Simulation, seconds: int) -> None:
    """Let time pass as the controller does: it looks again when it was told to."""
    end = simulation.now.timestamp() + seconds
    while simulation.now.timestamp() < end:
        outcome = simulation.settle()
        due = end if outcome.check_at is None else min(outcome.check_at.timestamp(), end)
        simulation.wait(max(due - simulation.now.timestamp(), 0.1))
    simulation.settle()


def test_a_config_map_that_was_deleted_before_its_pods_had_it_is_made_again() -> None:
    simulation = being_set_up()
    del simulation.objects[CONFIG_MAP]
    wait(simulation, 19)
    assert CONFIG_MAP not in simulation.objects
    wait(simulation, 1)
    assert CONFIG_MAP in simulation.objects
    del simulation.objects[CONFIG_MAP]
    wait(simulation, 20)
    assert CONFIG_MAP in simulation.objects


@pytest.mark.parametrize("lost", [SERVICE, SLICE])
def test_what_names_resolve_by_is_made_again_while_the_agents_look_for_each_other(lost: tuple[str, str]) -> None:
    simulation = started()
    for index in range(2):
        simulation.change(index, node=f"node{index}", address=f"10.0.0.{index + 1}", phase="Running")
    simulation.settle()
    del simulation.objects[lost]
    wait(simulation, 20)
    assert lost in simulation.objects


@pytest.mark.parametrize("lost", [SERVICE, CONFIG_MAP])
def test_a_pod_that_is_made_anew_finds_what_was_deleted(lost: tuple[str, str]) -> None:
    simulation = started()
    del simulation.objects[lost]
    simulation.remove("pretrain-1-1")
    simulation.settle()
    assert lost in simulation.objects
    assert simulation.writes[-1] == "pod pretrain-1-1"


def test_the_config_maps_that_late_pods_may_lack_are_asked_for_together() -> None:
    names = [f"map-{number}" for number in range(14)]
    simulation = being_set_up(*({"name": name, "configMap": {"name": name}} for name in names))
    simulation.config_maps.update({name: {"key": "value"} for name in names[:-1]})
    simulation.wait(20)
    passes = [[each.name for each in simulation.step().questions if isinstance(each, ReadConfigMap)] for _ in range(3)]
    assert [asked for asked in passes if asked] == [names]
    assert "there is no ConfigMap map-13" in simulation.condition(ConditionType.READY).message


@pytest.mark.parametrize("fields", [{}, {"node": "node0"}, {"node": "node0", "waiting_reason": "ErrImagePull"}])
def test_nothing_is_doubted_while_pods_wait_for_a_node_or_an_image(fields: dict[str, Any]) -> None:
    simulation = started()
    simulation.change(0, **fields)
    simulation.change(1, node="node1", address="10.0.0.1", phase="Running")
    simulation.settle()
    simulation.objects.clear()
    wait(simulation, 600)
    assert not simulation.objects


def test_nothing_is_doubted_once_all_ranks_run() -> None:
    simulation = running()
    simulation.objects.clear()
    wait(simulation, 600)
    assert not simulation.objects


def test_a_config_map_that_is_gone_together_with_its_source_is_said_to_be() -> None:
    simulation = Simulation(job(dsConfig=None, dsConfigFrom={"configMap": "cfg", "key": "c"}))
    simulation.config_maps["cfg"] = {"c": '{"train_micro_batch_size_per_gpu": 1}'}
    simulation.settle()
    simulation.change(1, node="node1", set_up=False)
    simulation.config_maps.clear()
    simulation.facts = Facts()
    wait(simulation, 20)
    assert simulation.condition(ConditionType.RUNNING).reason == "ConfigUnavailable"


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        ({"secret": {"secretName": "token"}}, ": Secret token may be missing."),
        ({"persistentVolumeClaim": {"claimName": "data"}}, ": PersistentVolumeClaim data may be missing."),
        ({"configMap": {"name": "absent"}}, "there is no ConfigMap absent; create it."),
        ({"projected": {"sources": [{"secret": {"name": "token"}}, {"configMap": {"name": "code"}}]}}, "Secret token"),
        ({"csi": {"driver": "d"}}, "volume v"),
    ],
)
def test_what_volumes_may_lack_is_named_within_half_a_minute_and_at_the_deadline(
    volume: dict[str, Any], words: str
) -> None:
    simulation = being_set_up({"name": "v", **volume}, lifecycle={"startupDeadlineSeconds": 60})
    wait(simulation, 20)
    said = simulation.condition(ConditionType.RUNNING)
    assert (said.reason, "pod pretrain-1-0 on node node0" in said.message) == ("VolumesNotReady", True)
    assert words in said.message
    written = len(simulation.writes)
    wait(simulation, 39)
    assert len(simulation.writes) == written
    wait(simulation, 1)
    assert words in simulation.condition(ConditionType.FAILED).message


def test_an_operator_that_has_just_begun_writes_nothing_about_what_was_said_before() -> None:
    simulation = being_set_up({"name": "v", "secret": {"secretName": "token"}})
    wait(simulation, 20)
    written = len(simulation.writes)
    simulation.facts = Facts(status_written_at=simulation.now)
    for index in range(2):
        pod = simulation.pod(index)
        simulation.pods[pod.name] = replace(pod, since=simulation.now)
    wait(simulation, 60)
    assert simulation.writes[written:] == []
    assert simulation.condition(ConditionType.RUNNING).reason == "VolumesNotReady"


@pytest.mark.parametrize(
    "volume",
    [
        {"emptyDir": {}},
        {"secret": {"secretName": "token", "optional": True}},
        {"configMap": {"name": "code"}},
        {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
    ],
)
def test_what_cannot_be_missing_is_not_named(volume: dict[str, Any]) -> None:
    simulation = being_set_up({"name": "v", **volume})
    wait(simulation, 60)
    assert simulation.condition(ConditionType.RUNNING).reason == "Starting"


def test_files_that_were_deleted_after_the_job_was_accepted_are_named_until_they_are_back() -> None:
    simulation = being_set_up(training={"script": "train.py", "files": {"configMap": "code"}})
    files = simulation.config_maps.pop("code")
    wait(simulation, 20)
    assert "there is no ConfigMap code" in simulation.condition(ConditionType.RUNNING).message
    simulation.config_maps["code"] = files
    wait(simulation, 20)
    assert simulation.condition(ConditionType.RUNNING).reason == "Starting"


def all_run_but_do_not_train(*missing: int, nodes: int = 3) -> Simulation:
    """A job whose containers all run, and whose rank 0's agent misses the peers of these indices."""
    simulation = started(nodes=nodes, lifecycle={"startupDeadlineSeconds": 300})
    misses(simulation, *missing)
    for index in range(nodes):
        simulation.change(index, node=f"node{index}", address=f"10.0.0.{index + 1}", phase="Running")
    simulation.settle()
    return simulation


def misses(simulation: Simulation, *missing: int) -> None:
    hosts = tuple(f"pretrain-1-{index}.pretrain" for index in missing)
    simulation.agent = AgentReport(1, simulation.now, missing=hosts, warnings=() if missing else ("/dev/shm is small",))


def test_peers_that_rank_0s_agent_refuses_are_named_with_the_reason() -> None:
    simulation = all_run_but_do_not_train(1, 2)
    assert simulation.agent is not None
    refused = {simulation.pod(2).address or "": "attempt 1; here is attempt 2", "10.9.9.9": "somebody else's pod"}
    simulation.agent = replace(simulation.agent, refused=refused)
    wait(simulation, 20)
    said = simulation.condition(ConditionType.RUNNING)
    assert said.reason == "WaitingForPeers"
    assert "the agent of rank 0 refuses pod pretrain-1-2 on node" in said.message
    assert "attempt 1; here is attempt 2. Set a new spec.runId to run it again." in said.message
    assert "somebody else" not in said.message


def test_peers_that_rank_0s_agent_has_not_heard_from_are_named_once_they_are_late_and_at_the_deadline() -> None:
    simulation = all_run_but_do_not_train(1, 2)
    wait(simulation, 19)
    assert simulation.reads == []
    written = len(simulation.writes)
    wait(simulation, 1)
    said = simulation.condition(ConditionType.RUNNING)
    assert said.reason == "WaitingForPeers"
    assert "pod pretrain-1-1 on node node1, pod pretrain-1-2 on node node2: does pretrain-1-0.pretrain" in said.message
    wait(simulation, 120)
    assert simulation.writes[written:] == ["status"]
    assert len(simulation.reads) <= 1 + 120 / 30
    misses(simulation, 2)
    wait(simulation, 60)
    assert simulation.writes[written:] == ["status"] * 2
    assert "pretrain-1-1" not in simulation.condition(ConditionType.RUNNING).message
    wait(simulation, 300)
    assert "has not heard from pod pretrain-1-2 on node node2" in simulation.condition(ConditionType.FAILED).message


def test_peers_are_late_20_seconds_after_the_last_container_began_however_long_the_first_has_waited() -> None:
    simulation = started()
    misses(simulation, 1)
    simulation.change(0, node="node0", address="10.0.0.1", phase="Running")
    simulation.change(1, node="node1", address="10.0.0.2")
    simulation.settle()
    wait(simulation, 600)
    simulation.change(1, phase="Running")
    wait(simulation, 19)
    assert simulation.condition(ConditionType.RUNNING).reason == "Starting"
    assert simulation.reads == []
    wait(simulation, 1)
    assert simulation.condition(ConditionType.RUNNING).reason == "WaitingForPeers"


def test_once_the_ranks_run_their_agent_is_asked_again_though_it_told_of_missing_peers_just_before() -> None:
    simulation = all_run_but_do_not_train(1)
    wait(simulation, 20)
    misses(simulation)
    reads = len(simulation.reads)
    simulation.run_all()
    simulation.settle()
    assert len(simulation.reads) == reads + 1
    assert [finding.message for finding in simulation.job.status.findings] == ["/dev/shm is small"]


def test_nothing_is_said_of_peers_when_all_have_been_heard_of_or_what_is_missing_is_no_host_of_the_job() -> None:
    simulation = all_run_but_do_not_train()
    wait(simulation, 60)
    assert simulation.agent is not None
    simulation.agent = replace(simulation.agent, missing=("elsewhere.pretrain", ""))
    wait(simulation, 60)
    assert simulation.condition(ConditionType.RUNNING).reason == "Starting"


def test_an_agent_that_falls_silent_or_an_operator_that_begins_anew_changes_nothing_about_who_is_missing() -> None:
    simulation = all_run_but_do_not_train(1)
    wait(simulation, 20)
    written = len(simulation.writes)
    simulation.agent = None
    wait(simulation, 60)
    simulation.facts = Facts(status_written_at=simulation.now)
    for name, pod in simulation.pods.items():
        simulation.pods[name] = replace(pod, since=simulation.now)
    wait(simulation, 60)
    assert simulation.writes[written:] == []
    assert simulation.condition(ConditionType.RUNNING).reason == "WaitingForPeers"
