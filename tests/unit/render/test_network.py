"""Network profiles: what a job gets for its profile, and that the user's own word always holds."""

import json
from typing import Any

import pytest

from tests.unit.render.test_attempt import attempt_of, trainer_of_pod


def variables(trainer: dict[str, Any] | None = None, **network: Any) -> dict[str, str]:
    """The variables of the trainer container that somebody wrote a value for, but for the operator's own."""
    template = {"spec": {"containers": [{"name": "a", **(trainer or {})}]}}
    env = trainer_of_pod(attempt_of(template, network=network))["env"]
    names = [each["name"] for each in env]
    assert len(names) == len(set(names)), "Kubernetes would take the last of two"
    values = {each["name"]: each.get("value") for each in env}
    return {name: value for name, value in values.items() if not name.startswith("DEEPSPEED_OPERATOR_")}


def limits(resource: str, number: int = 8) -> dict[str, Any]:
    return {"resources": {"limits": {resource: number}}}


def left_to_the_agent(trainer: dict[str, Any] | None = None, **network: Any) -> dict[str, str]:
    template = {"spec": {"containers": [{"name": "a", **(trainer or {})}]}}
    return json.loads(attempt_of(template, network=network).config_map()["data"]["plan.json"])["environment"]


def test_without_a_word_nothing_is_set() -> None:
    assert variables() == {}
    assert left_to_the_agent() == {}


INTERFACES: list[tuple[dict[str, Any], dict[str, str]]] = [
    (limits("nvidia.com/gpu"), {"NCCL_SOCKET_IFNAME": "=eth1"}),
    (limits("nvidia.com/mig-1g.10gb"), {"NCCL_SOCKET_IFNAME": "=eth1"}),
    (limits("amd.com/gpu"), {"NCCL_SOCKET_IFNAME": "=eth1"}),
    (limits("huawei.com/Ascend910"), {"HCCL_SOCKET_IFNAME": "=eth1"}),
    (limits("habana.ai/gaudi"), {"HCCL_SOCKET_IFNAME": "eth1"}),
    (limits("gpu.intel.com/xe"), {"CCL_KVS_IFACE": "eth1", "FI_TCP_IFACE": "eth1"}),
    (limits("nvidia.com/gpu", 0), {}),
]


@pytest.mark.parametrize(("trainer", "named"), INTERFACES)
def test_an_interface_is_exact_in_the_words_of_the_accelerators_library(
    trainer: dict[str, Any], named: dict[str, str]
) -> None:
    everywhere = {"GLOO_SOCKET_IFNAME": "eth1", "TP_SOCKET_IFNAME": "eth1"}
    assert variables(trainer, interface="eth1") == {**named, **everywhere}


def test_the_template_wins_over_env_and_env_over_the_interface() -> None:
    trainer: dict[str, Any] = {
        "env": [{"name": "NCCL_DEBUG", "value": "WARN"}, {"name": "GLOO_SOCKET_IFNAME", "valueFrom": {}}]
    }
    env = {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "bond0"}
    assert variables(trainer, interface="eth1", env=env) == {
        "NCCL_DEBUG": "WARN",
        "GLOO_SOCKET_IFNAME": None,
        "NCCL_SOCKET_IFNAME": "bond0",
        "TP_SOCKET_IFNAME": "eth1",
    }


@pytest.mark.parametrize("resource", ["habana.ai/gaudi", "gpu.intel.com/xe", "huawei.com/Ascend910"])
def test_no_variable_of_nccl_is_forced_on_another_library(resource: str) -> None:
    assert left_to_the_agent(limits(resource), profile="TCP") == {}
    assert left_to_the_agent(limits("nvidia.com/gpu"), profile="TCP") == {"NCCL_NET": "Socket"}
