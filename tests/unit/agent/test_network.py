"""Names of interfaces and adapters that an image brings are held against what the pod has, before its ranks start."""

import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.agent.harness import PRINT_ENVIRONMENT, Gang, launch_of, load

Make = Callable[..., Gang]

CASES = [
    ("GLOO_SOCKET_IFNAME", "lo", ""),
    ("GLOO_SOCKET_IFNAME", "eth99", r"no network interface eth99 in this pod, which has .*\blo\b"),
    ("GLOO_SOCKET_IFNAME", "", ""),
    ("NCCL_SOCKET_IFNAME", "=lo", ""),
    ("NCCL_SOCKET_IFNAME", "eth99,l", ""),
    ("NCCL_SOCKET_IFNAME", "=eth99,l", r"NCCL_SOCKET_IFNAME==eth99,l is no network interface of this pod, .*\blo\b"),
    ("NCCL_SOCKET_IFNAME", "^docker0", ""),  # one node needs none
    ("NCCL_IB_HCA", "=rocep99s0:1", "NCCL_IB_HCA==rocep99s0:1 is no RDMA adapter of this pod, which has "),
    ("NCCL_IB_HCA", "^mlx5_7", ""),
]


@pytest.mark.parametrize(("variable", "value", "words"), CASES)
def test_a_name_that_is_not_in_the_pod_is_a_warning(gang: Make, variable: str, value: str, words: str) -> None:
    (ended,) = gang().run(**{variable: value})
    assert ended.code == 0
    assert ("warning:" in ended.output and variable in ended.output) is bool(words)
    assert re.search(words, ended.output)


def test_what_nccls_settings_file_names_is_seen_and_a_variable_wins_over_it(gang: Make, tmp_path: Path) -> None:
    settings = tmp_path / "nccl.conf"
    settings.write_text("# ours\nNCCL_SOCKET_IFNAME=eth99\nNCCL_SOCKET_IFNAME=lo\n")
    (ended,) = gang().run(NCCL_CONF_FILE=str(settings))
    assert f"NCCL_SOCKET_IFNAME=eth99 ({settings}) is no network interface of this pod" in ended.output
    (ended,) = gang().run(NCCL_CONF_FILE=str(settings), NCCL_SOCKET_IFNAME="=lo")
    assert "NCCL_SOCKET_IFNAME" not in ended.output


@pytest.mark.parametrize(("value", "warned"), [("^docker0", True), ("^docker0,lo", False), ("^=docker0,l", True)])
def test_a_list_of_exclusions_has_to_leave_out_loopback_between_nodes(gang: Make, value: str, warned: bool) -> None:
    for ended in gang(nodes=2).run(NCCL_SOCKET_IFNAME=value):
        assert ended.code == 0
        assert ("lets loopback in" in ended.output) is warned


@pytest.fixture
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a node whose /etc/hosts has its own name beside 127.0.1.1."""
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")


@pytest.mark.usefixtures("on_loopback")
def test_gloo_gets_an_interface_where_the_hosts_name_is_loopbacks() -> None:
    environ: dict[str, str] = {}
    said = load("dso_network").name_interface(environ, launch_of(2))
    assert said.startswith("the name of this host, localhost, is one of loopback")
    routed = load("dso_network").default_interface()
    assert environ == ({"GLOO_SOCKET_IFNAME": routed} if routed else {})
    assert routed != "lo"
    assert ("is set to" if routed else "set spec.network.interface") in said


@pytest.mark.usefixtures("on_loopback")
def test_gloos_interface_stays_as_it_is_given_and_one_node_needs_none() -> None:
    environ = {"GLOO_SOCKET_IFNAME": "eth7"}
    assert load("dso_network").name_interface(environ, launch_of(2)) == ""
    assert environ == {"GLOO_SOCKET_IFNAME": "eth7"}
    assert load("dso_network").name_interface({}, launch_of(1)) == ""


def test_pods_of_dsjob_run_meet_on_loopback(gang: Make) -> None:
    for ended in gang(nodes=2, script=PRINT_ENVIRONMENT).run():
        assert "GLOO_SOCKET_IFNAME" not in ended.environments[0]


def test_a_name_that_no_address_belongs_to_is_loopbacks_to_pytorch() -> None:
    reaches = load("dso_network").reaches_others
    assert not reaches("no-such-host.invalid")
    assert not reaches("127.0.1.1")
    assert not reaches("localhost")
