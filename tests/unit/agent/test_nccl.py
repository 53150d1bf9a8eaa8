"""What NCCL of many versions, and RCCL, say of their connections is understood; what they do not say is not made up."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.agent.harness import launch_of, load

LOGS = Path(__file__).parent / "nccl"


def summary(text: str, slots: int = 1, *, over: bool = False) -> dict[str, Any]:
    """What the gang says of a log in which `### node N` begins a node's lines."""
    parts = re.split(r"^### node (\d+)\n", text, flags=re.MULTILINE)[1:]
    reports: dict[int, Any] = {}
    for node, lines in zip(parts[::2], parts[1::2], strict=True):
        log = load("dso_nccl").Log()
        for line in lines.splitlines():
            log.take("file", line)
        reports[int(node)] = log.report()
    return load("dso_transport").summary(launch_of(nodes=2, slots=slots), reports, over, "why")


def said(found: dict[str, Any]) -> list[str]:
    return [f"{link['between']} {link['uses']} {' '.join(link['devices'])}".strip() for link in found["links"]]


@pytest.mark.parametrize(
    ("name", "slots", "state", "library", "links"),
    [
        ("2.18-roce", 2, "IB", "NCCL 2.18.3+cuda12.2",
         ["Nodes NET/IB/GDRDMA mlx5_0 (RoCE) mlx5_1 (RoCE)", "Ranks P2P/IPC"]),
        ("2.21-ib-plugin", 1, "IB", "",
         ["Nodes NET/IBext_v8/GDRDMA mlx5_0 (IB) mlx5_1 (IB)", "Nodes COLLNET/SHARP mlx5_1 (IB)"]),
        ("2.21-socket-fallback", 2, "Socket", "NCCL 2.21.5+cuda12.4",
         ["Nodes NET/Socket bond0.2093 eth0", "Ranks P2P/IPC"]),
        ("2.23-shm-and-socket", 2, "Socket", "NCCL 2.23.4+cuda12.6", ["Nodes NET/Socket eth0", "Ranks SHM/direct"]),
        ("2.27-efa", 1, "OFI", "NCCL 2.27.3+cuda12.9", ["Nodes NET/Libfabric/GDRDMA efa"]),
        ("2.28-nvlink", 1, "P2P", "NCCL 2.28.9+cuda13.0", ["Nodes P2P/CUMEM"]),
        ("2.28-socket", 1, "Socket", "NCCL 2.28.9+cuda13.0", ["Nodes NET/Socket lo"]),
        ("2.30-roce", 1, "IB", "NCCL 2.30.7+cuda13.2",
         ["Nodes NET/IB/GDRDMA mlx5_0+mlx5_1", "Nodes NET/IB mlx5_0 (RoCE)"]),
        ("2.30-mnnvl", 1, "P2P", "NCCL 2.30.7+cuda13.3", ["Nodes P2P/MNNVL"]),
        ("rccl-2.18-socket", 2, "Socket", "RCCL 2.18.3-HEAD:9a0e6a1", ["Nodes NET/Socket hsn1", "Ranks P2P/IPC"]),
        ("rccl-2.21-ib", 1, "IB", "RCCL 2.21.5-HEAD:0cbce2a", ["Nodes NET/IB/GDRDMA bnxt_re0 (RoCE)"]),
    ],
)  # fmt: skip
def test_each_version_tells_what_the_nodes_use(
    name: str, slots: int, state: str, library: str, links: list[str]
) -> None:
    found = summary((LOGS / f"{name}.log").read_text(), slots)
    assert (found["state"], found.get("library", ""), said(found)) == (state, library, links)
    assert {link["pairs"] for link in found["links"] if "pairs" in link} == {1}


def test_the_network_that_nccl_announces_is_not_the_one_it_uses() -> None:
    # "Using network Socket" is printed although all traffic is P2P.
    assert "Using network Socket" in (LOGS / "2.28-nvlink.log").read_text()
    assert summary((LOGS / "2.28-nvlink.log").read_text())["state"] == "P2P"


def test_no_line_is_pending_and_after_a_step_unknown_but_never_socket() -> None:
    lines = [line for line in (LOGS / "2.28-socket.log").read_text().splitlines() if " via " not in line]
    text = "\n".join(lines) + "\n"
    found = summary(text)
    assert (found["state"], found["links"]) == ("Pending", [])
    found = summary(text, over=True)
    assert (found["state"], found["links"], found["message"]) == ("Unknown", [], "why")


def comm(node: int, rank: int, size: int, nodes: int, *, address: str = "0x1", identity: str = "0xaa") -> str:
    said = f"h:{node}:9 [0] NCCL INFO "
    start = f"{said}ncclCommInitRank comm {address} rank {rank} nranks {size} busId 1 commId {identity} - Init START\n"
    return start + f"{said}comm {address} rank {rank} nRanks {size} nNodes {nodes} localRanks 1 localRank 0 MNNVL 0\n"


def test_pairs_that_differ_are_told_apart() -> None:
    reports: dict[int, Any] = {}
    for node, way in enumerate(["NET/IB/0", "NET/IB/0", "NET/Socket/0"]):
        log = load("dso_nccl").Log()
        channel = f"h:{node}:9 [0] NCCL INFO Channel 00/0 : {node}[0] -> {(node + 1) % 3}[0] [send] via {way}"
        for line in (comm(node, node, 3, 3) + channel).splitlines():
            log.take("file", line)
        reports[node] = log.report()
    found = load("dso_transport").summary(launch_of(nodes=3, slots=1), reports, False, "")
    assert found["state"] == "Mixed"
    assert {link["uses"]: link["nodes"] for link in found["links"]} == {"NET/IB": ["0-1", "1-2"], "NET/Socket": ["0-2"]}
    assert load("dso_transport").those_on(["Socket"], found) == "nodes 0-2 use NET/Socket (0)"


def test_ranks_of_a_group_are_found_on_their_nodes_by_the_groups_identity() -> None:
    """A group of ranks 1 and 3 of four: its rank 1 is on node 1, whatever its number says in the world."""
    channel = "h:0:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0\n"
    first = comm(0, 1, 4, 2) + comm(0, 0, 2, 2, address="0x2", identity="0xbb") + channel
    second = comm(1, 3, 4, 2) + comm(1, 1, 2, 2, address="0x2", identity="0xbb")
    back = "h:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0\n"
    found = summary(f"### node 0\n{first}### node 1\n{second}{back}", slots=2)
    assert [(link["between"], link["pairs"]) for link in found["links"]] == [("Nodes", 1)]


def test_a_provider_of_libfabric_that_is_a_socket_counts_as_one() -> None:
    text = (LOGS / "2.27-efa.log").read_text().replace("provider is efa,", "provider is tcp;ofi_rxm,")
    assert summary(text)["state"] == "Socket"


def test_a_report_stays_small_whatever_a_program_does() -> None:
    log = load("dso_nccl").Log()
    for number in range(300):
        for line in comm(0, 0, 5000, 5000, address=hex(number + 1), identity=hex(number + 1)).splitlines():
            log.take("file", line)
        for peer in range(1, 40):
            log.take("file", f"h:0:9 [0] NCCL INFO Channel 00/0 : 0[0] -> {number * 10 + peer}[0] [send] via NET/IB/0")
    log.take("file", "h:0:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0")
    report = log.report()
    assert len(str(report)) < 32_000
    ways = {link[2] for link in report["links"]}
    assert ways <= {"NET/IB", "NET/Socket"}


TOKENS = st.sampled_from(
    ["h:1:2 [0] NCCL INFO ", "Channel 00/0 : ", "Channel 00 : ", "0[0] -> ", "1[0] ", "[send] ", "[receive] ", "via ",
     "NET/IB/0", "NET/", "/GDRDMA", "P2P/", "SHM/direct", "comm ", "0x1 ", "rank 0 ", "nranks 2 ", "nRanks 2 ",
     "nNodes 2", "commId 0x1", "parent 0x1 ", "color -1", "Init START", "COMPLETE", "NET/Socket : Using", " [0]lo:1",
     "CollNet 00/1 : 0 [send] via COLLNET/SHARP/1", "NCCL version ", "NET/OFI Selected provider is ", "99999999999999",
     "\0", "é", " ", "/", "[", "]"]
)  # fmt: skip


@given(st.lists(st.one_of(st.lists(TOKENS, max_size=14).map("".join), st.text(max_size=80)), max_size=30))
def test_no_input_stops_the_parser_and_its_report_is_always_understood(lines: list[str]) -> None:
    log = load("dso_nccl").Log()
    for line in lines:
        log.take("file", line)
    found = load("dso_transport").summary(launch_of(nodes=2, slots=1), {0: log.report(), 1: log.report()}, True, "")
    assert found["state"] in {"Unknown", "P2P", "SHM", "Socket", "IB", "OFI", "Plugin", "Mixed"}
