"""Flags and their variables."""

import pytest

from deepspeed_operator.controller.prerequisites import server_version
from deepspeed_operator.controller.settings import Settings, settings_from


def test_defaults() -> None:
    settings = settings_from([], {"POD_NAMESPACE": "system"})
    expected = Settings(namespace="system", identity=settings.identity)
    assert settings == expected
    assert settings.identity


def test_a_flag_wins_over_its_variable() -> None:
    environment = {"DEEPSPEED_OPERATOR_HTTP_PORT": "9000", "DEEPSPEED_OPERATOR_QPS": "50"}
    settings = settings_from(["--http-port", "9001"], environment)
    assert (settings.http_port, settings.qps) == (9001, 50.0)


def test_rules_are_a_json_list_of_objects(capsys: pytest.CaptureFixture[str]) -> None:
    assert settings_from([], {"DEEPSPEED_OPERATOR_JOBS_INGRESS": '[{"ports": []}]'}).jobs_ingress == ({"ports": []},)
    for wrong in ("", "{}", "[1]"):
        with pytest.raises(SystemExit):
            settings_from([], {"DEEPSPEED_OPERATOR_JOBS_INGRESS": wrong})
        assert f"{wrong!r} is no JSON list of objects" in capsys.readouterr().err


def test_namespaces_are_a_set() -> None:
    assert settings_from(["--watch-namespaces", "b, a,,b"], {}).watched_namespaces == ("a", "b")


@pytest.mark.parametrize(
    ("value", "enabled"),
    [
        ("true", True),
        ("Yes", True),
        ("on", True),
        ("1", True),
        ("false", False),
        ("OFF", False),
        ("no", False),
        ("0", False),
    ],
)
def test_leader_election_can_be_switched(value: str, enabled: bool) -> None:
    assert settings_from([], {"DEEPSPEED_OPERATOR_LEADER_ELECTION": value}).leader.enabled is enabled
    assert settings_from(["--no-leader-election"], {}).leader.enabled is False


def test_a_switch_is_a_plain_word(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings_from([], {"DEEPSPEED_OPERATOR_LEADER_ELECTION": "disabled"})
    assert "DEEPSPEED_OPERATOR_LEADER_ELECTION is 'disabled': write true or false" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--qps=0"],
        ["--qps=-1"],
        ["--qps=nan"],
        ["--qps=inf"],
        ["--in-flight=0"],
        ["--workers=0"],
        ["--http-port=65536"],
        ["--http-port=-1"],
        ["--retry-period=0"],
        ["--renew-deadline=nan"],
        ["--lease-duration=10"],  # no longer than the renew deadline
        ["--retry-period=9"],
    ],
)
def test_impossible_numbers_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        settings_from(arguments, {})
    assert ended.value.code == 2
    assert arguments[0].split("=")[0] in capsys.readouterr().err


def test_nodes_are_read_only_where_that_is_switched_on() -> None:
    assert settings_from([], {}).reads_nodes is False
    assert settings_from([], {"DEEPSPEED_OPERATOR_READ_NODES": "true"}).reads_nodes is True
    assert settings_from(["--read-nodes"], {}).reads_nodes is True


def test_accelerators_are_cpu_or_resources_whose_units_are_slots() -> None:
    settings = settings_from(["--worker-accelerator=nvidia.com/gpu", "--default-accelerator=cpu"], {})
    assert (settings.worker_accelerator, settings.default_accelerator) == ("nvidia.com/gpu", "cpu")
    for refused in ("gpu", "nvidia.com/mig-*", "memory"):
        with pytest.raises(SystemExit):
            settings_from([f"--worker-accelerator={refused}"], {})


def test_a_bad_variable_is_refused_as_a_bad_flag_is() -> None:
    with pytest.raises(SystemExit):
        settings_from([], {"DEEPSPEED_OPERATOR_HTTP_PORT": "web"})


@pytest.mark.parametrize(
    ("text", "version"), [("v1.36.3", (1, 36)), ("v1.31.0-gke.1", (1, 31)), ("1.34.0+k3s1", (1, 34))]
)
def test_server_versions(text: str, version: tuple[int, int]) -> None:
    assert server_version(text) == version
