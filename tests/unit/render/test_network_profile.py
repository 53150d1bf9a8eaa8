"""Network profiles: what a job gets for its profile, and that the user's own word always holds."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepspeed_operator.api.network import NetworkProfile
from deepspeed_operator.job.fabric.profile import Profile, profile
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
    return json.loads(attempt_of(template, network=network).config_map()["data"]["launch.json"])["environment"]


def test_without_a_word_nothing_is_set() -> None:
    assert variables() == {}
    assert left_to_the_agent() == {}


INTERFACES: list[tuple[dict[str, Any], dict[str, str]]] = [
    (limits("nvidia.com/gpu"), {"NCCL_SOCKET_IFNAME": "=eth1"}),
    (limits("nvidia.com/mig-1g.10gb"), {"NCCL_SOCKET_IFNAME": "=eth1"}),
    (limits("amd.com/gpu"), {"NCCL_SOCKET_IFNAME": "=eth1"}),
    (limits("huawei.com/Ascend910"), {"HCCL_SOCKET_IFNAME": "=eth1"}),
    (limits("habana.ai/gaudi"), {"HCCL_SOCKET_IFNAME": "eth1"}),
    ({"resources": {"claims": [{"name": "gpu"}]}}, {"NCCL_SOCKET_IFNAME": "=eth1"}),  # of a device that is not known
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


PACKAGE = Path(__file__).parents[3] / "operator/deepspeed_operator"
GOLDEN = Path(__file__).parents[2] / "golden"
PROFILES = [pytest.param(profile(name), id=name) for name in NetworkProfile]
KNOWN = json.loads((PACKAGE / "lint/network/variables.json").read_text())
OF_PLUGINS = ("NCCL_GPUDIRECTTCPX_", "NCCL_FASTRAK_", "NCCL_TUNER_CONFIG_PATH")


def every_environment(fabric: Profile) -> dict[str, str]:
    """All variables that a profile may set, for whatever machine and container."""
    merged = dict(fabric.environment)
    for instance in fabric.instances.values():
        merged |= instance.environment
    for sidecar in fabric.sidecars:
        merged |= {each["name"]: each["value"] for each in sidecar.get("env", [])}
    return merged


def test_there_is_a_file_and_a_golden_pod_for_each_profile() -> None:
    assert {path.stem for path in (PACKAGE / "job/fabric/profiles").iterdir()} == set(NetworkProfile)
    golden = [next(iter(yaml.safe_load_all(path.read_text()))) for path in GOLDEN.glob("network-*.yaml")]
    assert {job["spec"]["network"]["profile"] for job in golden} == set(NetworkProfile)


@pytest.mark.parametrize("fabric", PROFILES)
def test_no_profile_decides_on_multicast(fabric: Profile) -> None:
    for name in every_environment(fabric):
        assert name != "NCCL_NVLS_ENABLE"
        assert not name.startswith(("TORCH_SYMM_MEM_", "NVSHMEM_"))


@pytest.mark.parametrize("fabric", PROFILES)
def test_the_oldest_nccl_of_a_profile_reads_all_that_it_sets(fabric: Profile) -> None:
    oldest = tuple(map(int, fabric.nccl.split(",")[0].removeprefix(">=").split(".")))
    ours = [name for name in every_environment(fabric) if name.startswith("NCCL_") and not name.startswith(OF_PLUGINS)]
    assert all("until" not in KNOWN[name] for name in ours)
    needed = max(((2, 4), *(tuple(map(int, KNOWN[name]["since"].split("."))) for name in ours)))
    assert oldest >= needed


# https://kubernetes.io/docs/concepts/security/pod-security-standards/: what `baseline` lets a container add.
BASELINE = {"NET_BIND_SERVICE"}


@pytest.mark.parametrize("fabric", PROFILES)
def test_the_pod_security_level_is_the_strictest_that_admits_what_is_added(fabric: Profile) -> None:
    added = set(fabric.capabilities)
    for sidecar in fabric.sidecars:
        added |= set(sidecar["securityContext"]["capabilities"]["add"])
    on_host = fabric.host_network or fabric.privileged or any("hostPath" in each.source for each in fabric.volumes)
    assert fabric.pod_security == ("privileged" if on_host or added - BASELINE else "restricted")


@pytest.mark.parametrize("fabric", PROFILES)
def test_sidecars_end_with_the_trainer_and_mount_what_is_there(fabric: Profile) -> None:
    names = {volume.name for volume in fabric.volumes}
    for sidecar in fabric.sidecars:
        assert sidecar["restartPolicy"] == "Always"
        assert {mount["name"] for mount in sidecar["volumeMounts"]} <= names


def pod_of(profile: str, pod: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    template = {"metadata": metadata, "spec": pod}
    return attempt_of(template, network={"profile": profile}).pod(0)


def trainer_with(profile: str, **trainer: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "a", **trainer}]}}
    return trainer_of_pod(attempt_of(template, network={"profile": profile}, slotsPerNode=8))


@pytest.mark.parametrize(
    ("resources", "limits"),
    [
        (None, {"nvidia.com/gpu": "8", "rdma/ib": "1"}),
        ({"limits": {"rdma/shared_ib": 1}}, {"rdma/shared_ib": 1, "nvidia.com/gpu": "8"}),
        ({"limits": {"rdma/ib": 4, "nvidia.com/gpu": 8}}, {"rdma/ib": 4, "nvidia.com/gpu": 8}),
        ({"claims": [{"name": "nics"}]}, None),
    ],
)
def test_the_fabrics_devices_are_requested_where_the_template_brings_none(resources: Any, limits: Any) -> None:
    assert trainer_with("InfiniBand", resources=resources)["resources"].get("limits") == limits


@pytest.mark.parametrize(
    ("limits", "pages"),
    [
        ({"memory": "64Gi"}, "5Gi"),
        ({"cpu": 8}, "5Gi"),
        ({}, None),  # the API server refuses huge pages without cpu or memory
        ({"memory": "64Gi", "hugepages-2Mi": 0}, 0),
        ({"memory": "64Gi", "vpc.amazonaws.com/efa": 32}, None),
    ],
)
def test_efa_gets_huge_pages_where_kubernetes_gives_any(limits: Any, pages: Any) -> None:
    found = trainer_with("AWS-EFA", resources={"limits": limits})["resources"]["limits"]
    assert found.get("hugepages-2Mi") == pages


@pytest.mark.parametrize(
    ("own", "context"),
    [
        (None, {"capabilities": {"add": ["IPC_LOCK"]}}),
        ({"runAsUser": 0, "capabilities": {"add": ["SYS_PTRACE"], "drop": ["ALL"]}},
         {"runAsUser": 0, "capabilities": {"add": ["SYS_PTRACE", "IPC_LOCK"], "drop": ["ALL"]}}),
        ({"capabilities": {"drop": ["IPC_LOCK"]}}, {"capabilities": {"drop": ["IPC_LOCK"]}}),
        ({"privileged": True}, {"privileged": True}),
    ],
)  # fmt: skip
def test_capabilities_are_added_unless_the_template_drops_them(own: Any, context: Any) -> None:
    assert trainer_with("InfiniBand", securityContext=own)["securityContext"] == context


def test_a_container_that_shall_not_be_privileged_is_not() -> None:
    assert trainer_with("OCI-RoCE")["securityContext"] == {"privileged": True}
    assert not trainer_with("OCI-RoCE", securityContext={"privileged": False})["securityContext"]["privileged"]


def test_the_nodes_network_is_used_unless_the_template_says_no() -> None:
    assert pod_of("OCI-RoCE")["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert not pod_of("OCI-RoCE", {"hostNetwork": False})["spec"]["hostNetwork"]


def test_annotations_volumes_mounts_and_sidecars_of_the_template_stay() -> None:
    own: dict[str, Any] = {"emptyDir": {}}
    pod = pod_of(
        "GKE-TCPX",
        {
            "initContainers": [{"name": "tcpx-daemon", "image": "own"}],
            "containers": [{"name": "a", "volumeMounts": [{"name": "mine", "mountPath": "/usr/local/nvidia/lib64"}]}],
            "volumes": [{"name": "mine", **own}, {"name": "tcpx-socket", **own}],
        },
        annotations={"networking.gke.io/interfaces": "[]"},
    )
    annotations = pod["metadata"]["annotations"]
    assert annotations["networking.gke.io/interfaces"] == "[]"
    assert annotations["networking.gke.io/default-interface"] == "eth0"
    assert [each["image"] for each in pod["spec"]["initContainers"]] == ["own"]
    names = [volume["name"] for volume in pod["spec"]["volumes"]]
    assert len(names) == len(set(names))
    paths = [mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]
    assert paths.count("/usr/local/nvidia/lib64") == 1
    assert "/run/tcpx" in paths


def test_the_type_of_machine_decides_how_many_devices_and_which() -> None:
    machine = {"nodeSelector": {"node.kubernetes.io/instance-type": "p5en.48xlarge"}}
    attempt = attempt_of({"spec": machine}, network={"profile": "AWS-EFA"})
    assert trainer_of_pod(attempt)["resources"]["limits"]["vpc.amazonaws.com/efa"] == "16"
    rack = {"nodeSelector": {"node.kubernetes.io/instance-type": "p6e-gb200.36xlarge"}}
    trainer = {"containers": [{"name": "a", "resources": {"limits": {"memory": "64Gi"}}}]}
    limits = trainer_of_pod(attempt_of({"spec": {**rack, **trainer}}, network={"profile": "AWS-EFA"}))["resources"][
        "limits"
    ]
    assert limits["vpc.amazonaws.com/efa"] == "4"
    assert "hugepages-2Mi" not in limits
    one = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["BM.GPU.H200.8"]}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [one]}]}}
    machine = {"affinity": {"nodeAffinity": terms}}
    plan = json.loads(
        attempt_of({"spec": machine}, network={"profile": "OCI-RoCE"}).config_map()["data"]["launch.json"]
    )
    assert plan["environment"]["NCCL_IB_HCA"].startswith("=mlx5_0,mlx5_3,")


def test_the_documents_table_is_that_of_the_profiles(pytestconfig: pytest.Config) -> None:
    path = Path(__file__).parents[3] / "docs/network.md"
    before, mark, rest = path.read_text().partition("<!-- profiles -->\n")
    _, end, after = rest.partition("<!-- /profiles -->\n")
    assert mark
    assert end
    rows = ["| profile | what it is | adds | NCCL | Pod Security |", "|---|---|---|---|---|"]
    for name in NetworkProfile:
        fabric = profile(name)
        rows.append(f"| `{name}` | {fabric.summary} | {added_by(fabric)} | {fabric.nccl} | {fabric.pod_security} |")
    page = before + mark + "\n".join(rows) + "\n" + end + after
    if pytestconfig.getoption("update_golden"):
        path.write_text(page)
    assert page == path.read_text(), "run `make generate`"


def added_by(fabric: Profile) -> str:
    net = fabric.environment.get("NCCL_NET")
    variables = len(fabric.environment) - (net is not None)
    parts = [f"`NCCL_NET={net}`"] if net else []
    parts += [f"{variables} variable{'s' if variables > 1 else ''}"] if variables else []
    parts += [f"`{resource}`" for resource in fabric.resources]
    parts += ["privileged"] if fabric.privileged else [f"`{capability}`" for capability in fabric.capabilities]
    parts += ["the node's network"] if fabric.host_network else []
    parts += [f"toleration of `{each['key']}`" for each in fabric.tolerations]
    parts += ["annotations"] if fabric.annotations else []
    parts += [f"sidecar `{sidecar['name']}`" for sidecar in fabric.sidecars]
    parts += [f"`{each.source['hostPath']['path']}`" for each in fabric.volumes if "hostPath" in each.source]
    return ", ".join(parts) or "nothing"
