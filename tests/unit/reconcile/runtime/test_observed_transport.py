"""What the agents tell of the network reaches status while the job runs, and stays there when it has ended."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from deepspeed_operator.api.status import Finding, State
from deepspeed_operator.api.transport import Transport, TransportState
from deepspeed_operator.reconcile.observe.observed import AgentReport
from deepspeed_operator.reconcile.observe.read_as import read_as
from tests.unit.reconcile.simulation import Simulation, agent_says, job

SOCKET: dict[str, Any] = {
    "state": "Socket",
    "links": [{"between": "Nodes", "uses": "NET/Socket", "kind": "Socket", "devices": ["eth0"], "pairs": 1}],
    "library": "NCCL 2.28.9+cuda13.0",
}
PENDING: dict[str, Any] = {"state": "Pending", "links": []}


def running(said: dict[str, Any], **spec: Any) -> Simulation:
    simulation = Simulation(job(**spec))
    says(simulation, said)
    return simulation.train()


def says(simulation: Simulation, said: dict[str, Any]) -> None:
    simulation.agent = AgentReport(1, simulation.now, transport=read_as(Transport, said))


def transport(simulation: Simulation) -> Transport:
    found = simulation.job.status.transport
    assert found is not None
    return found


def test_the_transport_is_in_status_within_30_seconds_of_the_agents_knowing_it() -> None:
    simulation = running(PENDING)
    assert transport(simulation).state is TransportState.PENDING
    says(simulation, SOCKET)
    due = simulation.settle().check_at
    assert due == simulation.now + timedelta(seconds=30)
    simulation.wait(30)
    simulation.settle()
    assert transport(simulation).state is TransportState.SOCKET
    assert transport(simulation).links[0].devices == ["eth0"]


def test_reading_the_same_again_writes_nothing() -> None:
    simulation = running(SOCKET)
    writes, reads = len(simulation.writes), len(simulation.reads)
    for _ in range(10):
        simulation.wait(30)
        simulation.settle()
    assert len(simulation.reads) == reads + 10
    assert len(simulation.writes) == writes


def test_an_agent_that_does_not_answer_is_asked_ever_less_and_what_it_said_stays() -> None:
    simulation = running(SOCKET)
    simulation.agent = None
    for _ in range(120):
        simulation.wait(30)
        simulation.settle()
    assert len(simulation.reads) < 15
    assert transport(simulation).state is TransportState.SOCKET


def test_rank_0s_pod_is_not_asked_once_it_has_ended() -> None:
    simulation = running(SOCKET)
    simulation.end(0)
    reads = len(simulation.reads)
    simulation.wait(60)
    assert simulation.settle().check_at is None
    assert len(simulation.reads) == reads


def test_a_run_that_ended_without_a_report_is_unknown() -> None:
    simulation = running(PENDING)
    simulation.end(0)
    simulation.end(1)
    simulation.settle()
    assert simulation.job.status.state is State.COMPLETE
    assert transport(simulation).state is TransportState.UNKNOWN


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_run_that_was_too_short_to_be_asked_tells_it_in_its_last_words(exit_code: int) -> None:
    simulation = running(PENDING)
    words = agent_says(0, 0, exit_code, "RankFailed" if exit_code else "Completed", transport=SOCKET)
    simulation.end(0, exit_code, words)
    simulation.end(1, exit_code, words)
    simulation.settle()
    assert transport(simulation).state is TransportState.SOCKET


def test_a_new_run_begins_without_the_last_ones_transport() -> None:
    simulation = running(SOCKET)
    simulation.end(0)
    simulation.end(1)
    simulation.settle()
    simulation.edit(runId="again")
    simulation.settle()
    assert simulation.job.status.transport is None


FORGED: list[Any] = [
    None, [], "Socket", {"state": "Fast"}, {**SOCKET, "links": [{}]}, {**SOCKET, "library": "x" * 100_000},
    {**SOCKET, "links": SOCKET["links"] * 9},
]  # fmt: skip


@pytest.mark.parametrize("forged", FORGED)
def test_what_status_could_not_hold_is_not_taken(forged: Any) -> None:
    assert read_as(Transport, forged) is None
    simulation = running(SOCKET)
    says(simulation, forged)
    simulation.wait(30)
    simulation.settle()
    assert transport(simulation).state is TransportState.SOCKET


def test_another_attempts_report_is_not_this_ones() -> None:
    simulation = running(PENDING)
    assert simulation.facts.agent is not None
    simulation.facts = replace(simulation.facts, agent=replace(simulation.facts.agent, attempt=7))
    simulation.agent = AgentReport(7, simulation.now, transport=read_as(Transport, SOCKET))
    simulation.step()
    assert transport(simulation).state is TransportState.PENDING


def asking(profile: str = "NVLink", **more: Any) -> dict[str, Any]:
    return {"network": {"profile": profile, **more}}


def mismatches(simulation: Simulation) -> list[str]:
    return [event.message for event in simulation.events if event.reason == "TransportMismatch"]


def reports(simulation: Simulation) -> list[Finding]:
    return [finding for finding in simulation.job.status.findings if finding.message.startswith("NCCL reports")]


def test_a_fabric_that_is_not_used_is_a_warning_and_one_event() -> None:
    simulation = running(PENDING, **asking())
    assert not mismatches(simulation)
    says(simulation, SOCKET)
    for _ in range(3):
        simulation.wait(30)
        simulation.settle()
    says(simulation, {**SOCKET, "links": [{**SOCKET["links"][0], "devices": ["eth0", "eth1"]}]})
    simulation.wait(30)
    simulation.settle()
    assert [event.type for event in simulation.events if event.reason == "TransportMismatch"] == ["Warning"]
    (finding,) = reports(simulation)
    assert (finding.level, finding.path) == ("warning", "spec.network.profile")
    assert "NET/Socket (eth0, eth1) between nodes" in finding.message
    assert simulation.job.status.state is State.RUNNING


def test_a_fabric_that_is_not_used_is_said_and_announced_once_where_status_holds_no_more_findings() -> None:
    unknown = {f"NCCL_NO_SUCH_{number}": "1" for number in range(60)}
    simulation = running(PENDING, **asking(env=unknown))
    says(simulation, SOCKET)
    simulation.wait(30)
    events = [event for _ in range(4) for event in simulation.step().events]
    assert [event.reason for event in events] == ["TransportMismatch"]
    assert len(reports(simulation)) == 1


@pytest.mark.parametrize("spec", [{}, asking("TCP"), asking("Auto")])
def test_without_a_fabric_that_was_asked_for_sockets_are_no_finding(spec: dict[str, Any]) -> None:
    simulation = running(SOCKET, **spec)
    assert not mismatches(simulation)
    assert not reports(simulation)


def test_a_run_that_was_too_short_to_be_asked_still_warns() -> None:
    simulation = running(PENDING, **asking())
    words = agent_says(0, None, None, "Completed", transport=SOCKET)
    simulation.end(0, 0, words)
    simulation.end(1, 0, words)
    simulation.settle()
    assert simulation.job.status.state is State.COMPLETE
    assert len(mismatches(simulation)) == 1


def test_a_required_fabric_that_is_not_used_fails_the_run_with_that_reason_and_no_other_event() -> None:
    simulation = running(PENDING, **asking(require=True))
    words = agent_says(0, None, None, "TransportMismatch", signature="all nodes use NET/Socket", transport=SOCKET)
    simulation.end(0, 1, words)
    simulation.end(1, 1, words)
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert failure.reason == "TransportMismatch"
    assert len(mismatches(simulation)) == 1
    assert transport(simulation).state is TransportState.SOCKET


@pytest.mark.parametrize(
    ("network", "fabric", "bandwidth"),
    [
        ({}, None, None),
        ({"preflight": "Bandwidth"}, None, 0),
        ({"preflight": "Bandwidth", "minimumBusBandwidth": "10G"}, None, 10_000_000_000),
        ({"preflight": "Bandwidth", "minimumBusBandwidth": "1.5Gi"}, None, 1_610_612_736),
        ({"preflight": "Bandwidth", "minimumBusBandwidth": 4096}, None, 4096),
        ({"profile": "NVLink", "require": True}, {"profile": "NVLink", "fallbacks": ["SHM", "Socket"]}, None),
        ({"profile": "InfiniBand", "require": True}, {"profile": "InfiniBand", "fallbacks": ["Socket"]}, None),
        ({"profile": "GKE-TCPX", "require": True}, {"profile": "GKE-TCPX", "fallbacks": ["Socket"]}, None),
        ({"profile": "NVLink"}, None, None),
    ],
)
def test_the_agents_are_told_what_to_check(network: dict[str, Any], fabric: Any, bandwidth: int | None) -> None:
    simulation = Simulation(job(network=network))
    simulation.settle()
    plan = json.loads(simulation.config_maps["pretrain-1-job-1"]["launch.json"])
    assert (plan["requiredFabric"], plan["preflightBandwidth"]) == (fabric, bandwidth)


def test_tcp_where_a_variable_asks_for_efa_is_told() -> None:
    env = [{"name": "FI_PROVIDER", "value": "efa"}]
    simulation = running(SOCKET, template={"spec": {"containers": [{"name": "trainer", "env": env}]}})
    (found,) = [each for each in simulation.job.status.findings if each.code == "transport-mismatch"]
    assert found.message == "NCCL reports NET/Socket (eth0) between nodes, not EFA, which FI_PROVIDER asks for."
    assert found.fix.startswith("Write spec.network.profile: AWS-EFA,")
