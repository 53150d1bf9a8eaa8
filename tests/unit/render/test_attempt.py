"""Rendering adds to what the user wrote, and changes none of it."""

import copy
import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import LABEL_ATTEMPT, LABEL_JOB_UID
from deepspeed_operator.api.network import NetworkProfile
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.job.world import world_of
from deepspeed_operator.render.attempt import Attempt
from deepspeed_operator.render.scheduling import Scheduling

INSTALLATION = Installation("UEsFBg==", "registry.example.com/worker:1", "0.19.8")


def attempt_of(template: Any = None, config_text: str | None = None, number: int = 1, **fields: Any) -> Attempt:
    spec = {"training": {"script": "train.py"}, "template": template, **fields}
    metadata = {"name": "pretrain", "namespace": "ml", "uid": "u-1"}
    job = DeepSpeedJob.model_validate({"metadata": metadata, "spec": spec})
    return Attempt(job, number, world_of(job.spec), config_text, INSTALLATION)


def trainer_of_pod(attempt: Attempt, index: int = 0) -> dict[str, Any]:
    containers = attempt.pod(index)["spec"]["containers"]
    return next(container for container in containers if "DEEPSPEED_OPERATOR_INDEX" in str(container))


def shared_memory(attempt: Attempt) -> Any:
    volumes = {volume["name"]: volume for volume in attempt.pod(0)["spec"]["volumes"]}
    return volumes["deepspeed-operator-shm"]["emptyDir"]


def test_what_a_kubelet_keeps_by_name_is_named_for_one_job_alone() -> None:
    attempt = attempt_of()
    again = attempt.job.model_copy(update={"metadata": attempt.job.metadata.model_copy(update={"uid": "0e9a7b31-5"})})
    made_again = Attempt(again, 1, attempt.world, None, INSTALLATION)
    for each in (attempt, made_again):
        volume = next(each for each in each.pod(0)["spec"]["volumes"] if "projected" in each)
        name = each.config_map()["metadata"]["name"]
        assert volume["projected"]["sources"] == [{"configMap": {"name": name}}, {"secret": {"name": name}}]
        assert each.secret()["metadata"]["name"] == name
    assert made_again.config_map()["metadata"]["name"] == "pretrain-1-0e9a7"
    assert attempt.config_map()["metadata"]["name"] != made_again.config_map()["metadata"]["name"]


names = st.text("abc", min_size=1, max_size=3)
maps = st.dictionaries(names, names)


def objects(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with a name, and with some of these fields."""
    return st.fixed_dictionaries({"name": names}, optional=optional)


containers = objects(
    command=st.lists(names),
    env=st.lists(objects(value=names)),
    volumeMounts=st.lists(objects(mountPath=names)),
    resources=objects(limits=maps, requests=st.none()),
    securityContext=st.none() | maps,
)
pods = objects(
    nodeSelector=maps,
    tolerations=st.lists(objects(key=names, operator=st.just("Exists"))),
    volumes=st.lists(objects(emptyDir=maps)),
    initContainers=st.lists(objects()),
    containers=st.lists(containers, max_size=1),
)
templates = objects(metadata=objects(labels=maps, annotations=maps), spec=pods)


def assert_kept(before: Any, after: Any) -> None:
    """Objects keep their fields and lists their items, in order and in front; nulls are as good as absent."""
    if before is None:
        return
    if isinstance(before, dict):
        for key, value in cast(dict[str, Any], before).items():
            assert_kept(value, after.get(key))
    elif isinstance(before, list):
        items = cast(list[Any], before)
        assert len(after) >= len(items)
        for one, other in zip(items, after, strict=False):
            assert_kept(one, other)
    else:
        assert before == after


@given(templates, st.sampled_from(NetworkProfile))
def test_a_template_is_kept_and_not_touched(template: dict[str, Any], profile: NetworkProfile) -> None:
    before = copy.deepcopy(template)
    attempt = attempt_of(template, "{}", nodes=2, network={"profile": profile})
    first = copy.deepcopy(attempt.pod(0))
    second = attempt.pod(1)
    assert template == before
    for field in ("labels", "annotations"):
        assert_kept(before.get("metadata", {}).get(field), second["metadata"].get(field))
    expected = copy.deepcopy(before.get("spec", {}))
    for container in expected.get("containers", []):
        if not container.get("command"):
            container.pop("command", None)
    assert_kept(expected, second["spec"])
    assert attempt.pod(0) == first
    assert json.loads(json.dumps(first)) == first


@pytest.mark.parametrize(
    ("fields", "limits", "expected"),
    [
        ({}, None, {"medium": "Memory"}),
        ({}, {"memory": "8Gi"}, {"medium": "Memory", "sizeLimit": "8Gi"}),
        ({"sharedMemory": "1Gi"}, {"memory": "8Gi"}, {"medium": "Memory", "sizeLimit": "1Gi"}),
        ({"sharedMemory": 1024}, None, {"medium": "Memory", "sizeLimit": 1024}),
    ],
)
def test_shared_memory_is_as_declared_else_as_the_memory_limit(
    fields: dict[str, Any], limits: Any, expected: dict[str, Any]
) -> None:
    template = {"spec": {"containers": [{"name": "a", "resources": {"limits": limits}}]}}
    assert shared_memory(attempt_of(template, **fields)) == expected


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (None, {"limits": {"nvidia.com/gpu": "4"}}),
        ({"limits": {"cpu": 1}}, {"limits": {"cpu": 1, "nvidia.com/gpu": "4"}}),
        ({"limits": {"nvidia.com/gpu": 0}}, {"limits": {"nvidia.com/gpu": 0}}),
        ({"limits": {"amd.com/gpu": 4}}, {"limits": {"amd.com/gpu": 4}}),
        ({"requests": {"nvidia.com/gpu": 4}}, {"requests": {"nvidia.com/gpu": 4}}),
        ({"claims": [{"name": "gpus"}]}, {"claims": [{"name": "gpus"}]}),
    ],
)
def test_slots_become_a_limit_only_where_the_template_says_nothing(resources: Any, expected: Any) -> None:
    template = {"spec": {"containers": [{"name": "a", "resources": resources}]}}
    assert trainer_of_pod(attempt_of(template, slotsPerNode=4))["resources"] == expected


@pytest.mark.parametrize("command", [None, []])
def test_without_an_entrypoint_the_agent_is_the_command(command: Any) -> None:
    trainer = trainer_of_pod(attempt_of({"spec": {"containers": [{"name": "a", "command": command}]}}))
    assert trainer["command"] == ["python3", "-S", "-u", "/etc/deepspeed-operator/agent"]
    assert "args" not in trainer


@pytest.mark.parametrize(
    "toleration",
    [{"operator": "Exists"}, {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
)
def test_who_tolerates_everything_is_left_alone(toleration: dict[str, Any]) -> None:
    pod = attempt_of({"spec": {"tolerations": [toleration]}}).pod(0)
    assert pod["spec"]["tolerations"] == [toleration]


def test_a_toleration_of_other_effects_does_not_keep_a_lost_pod_for_minutes() -> None:
    toleration = {"operator": "Exists", "effect": "NoSchedule"}
    pod = attempt_of({"spec": {"tolerations": [toleration]}}).pod(0)
    assert [item.get("tolerationSeconds") for item in pod["spec"]["tolerations"]] == [None, 30, 30]


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ({}, "0.19.8"),
        ({"image": "registry.example.com/worker:1"}, "0.19.8"),
        ({"image": "other"}, None),
        ({"image": "other", "deepspeedVersion": "0.16.9"}, "0.16.9"),
        ({"deepspeedVersion": "0.16.9"}, "0.16.9"),
    ],
)
def test_the_version_of_our_image_is_known(fields: dict[str, Any], version: str | None) -> None:
    assert json.loads(attempt_of(**fields).config_map()["data"]["launch.json"])["deepspeedVersion"] == version


def test_the_configuration_reaches_the_pods_byte_for_byte() -> None:
    text = '\t{"a" : 1.0,\r\n "ü": "\\u00e9"}'
    assert attempt_of(config_text=text).config_map()["data"]["ds_config.json"] == text


def test_slices_hold_at_most_a_thousand_addresses_of_one_family() -> None:
    attempt = attempt_of(nodes=2500)
    addresses = {index: f"10.0.{index // 250}.{index % 250}" for index in range(2500)}
    slices = attempt.endpoint_slices(addresses)
    assert [item["metadata"]["name"] for item in slices] == ["pretrain", "pretrain.1", "pretrain.2"]
    assert [len(item["endpoints"]) for item in slices] == [1000, 1000, 500]
    assert slices[2]["endpoints"][-1] == {
        "addresses": ["10.0.9.249"],
        "conditions": {"ready": True},
        "hostname": "pretrain-1-2499",
    }
    mixed = attempt.endpoint_slices({0: "fd00::1", 1: "10.0.0.1"})
    assert [(item["metadata"]["name"], item["addressType"]) for item in mixed] == [
        ("pretrain", "IPv4"),
        ("pretrain.ipv6", "IPv6"),
    ]


def test_only_pods_with_an_address_are_endpoints() -> None:
    (item,) = attempt_of(nodes=8).endpoint_slices({0: "10.0.0.1"})
    assert [endpoint["hostname"] for endpoint in item["endpoints"]] == ["pretrain-1-0"]
    assert attempt_of(nodes=8).endpoint_slices({}) == []


def test_pods_share_nothing_that_differs() -> None:
    attempt = attempt_of(nodes=3)
    pods = [attempt.pod(index) for index in range(3)]
    assert [pod["metadata"]["name"] for pod in pods] == [pod["spec"]["hostname"] for pod in pods]
    assert [pod["metadata"]["labels"]["deepspeed-operator.dev/index"] for pod in pods] == ["0", "1", "2"]
    assert [trainer_of_pod(attempt, index)["env"][-1]["value"] for index in range(3)] == ["0", "1", "2"]


def test_pods_on_the_nodes_network_take_their_agents_port_of_the_node() -> None:
    attempt = attempt_of({"spec": {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]}})
    agent = {"containerPort": attempt.ports.agent, "hostPort": attempt.ports.agent, "protocol": "TCP"}
    assert trainer_of_pod(attempt)["ports"] == [{"containerPort": 80}, agent]
    assert "ports" not in trainer_of_pod(attempt_of({"spec": {"containers": [{}]}}))


@pytest.mark.parametrize(
    ("pod", "mounted"),
    [
        ({}, False),
        ({"serviceAccountName": "trainer"}, None),
        ({"serviceAccount": "trainer"}, None),
        ({"automountServiceAccountToken": True}, True),
        ({"serviceAccountName": "trainer", "automountServiceAccountToken": False}, False),
    ],
)
def test_a_pod_has_a_token_of_the_api_server_only_where_the_template_means_it_to(
    pod: dict[str, Any], mounted: bool | None
) -> None:
    attempt = attempt_of(template={"spec": {**pod, "containers": [{"name": "trainer"}]}})
    assert attempt.pod(0)["spec"].get("automountServiceAccountToken") is mounted


def test_a_users_own_shared_memory_is_seen_however_its_path_is_written() -> None:
    mounted = {"containers": [{"volumeMounts": [{"name": "fast", "mountPath": "/dev/shm/"}]}]}
    pod = attempt_of({"spec": mounted}).pod(0)["spec"]
    paths = [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]]
    assert paths == ["/dev/shm/", "/etc/deepspeed-operator"]


def test_nodes_to_avoid_are_excluded_in_each_term_of_a_templates_own() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    terms = [{"matchExpressions": [zone]}, {"matchExpressions": [{**zone, "values": ["b"]}]}]
    preferred = [{"weight": 1, "preference": {"matchExpressions": [zone]}}]
    required = {"nodeSelectorTerms": terms}
    of_nodes = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    pod = Scheduling({LABEL_JOB_UID: "u", LABEL_ATTEMPT: "2"}, ["n1", "n2"]).add_to_pod(
        {"affinity": {"nodeAffinity": of_nodes, "podAffinity": {}}}
    )
    excluded = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in ("n1", "n2")]
    now = pod["affinity"]["nodeAffinity"]
    assert now["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {**term, "matchFields": excluded} for term in terms
    ]
    assert now["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    assert pod["affinity"]["podAffinity"] == {}
