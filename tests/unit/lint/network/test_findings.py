"""What is said about a job's network: unknown, given up and dangerous variables, and what a profile needs."""

from typing import Any

import pytest

from deepspeed_operator.api.network import NetworkProfile
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding, Level
from deepspeed_operator.job.accelerators import NVIDIA_GPU, accelerator_of, library_of
from deepspeed_operator.lint.network.findings import network_findings

GPU = {"resources": {"limits": {"nvidia.com/gpu": 8}}}


def _findings(written: dict[str, Any]) -> list[Finding]:
    spec = DeepSpeedJobSpec.model_validate(written)
    return network_findings(spec, library_of(accelerator_of(spec, NVIDIA_GPU)))


def findings(
    trainer: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, nodes: int = 2, **network: Any
) -> list[Finding]:
    spec = {"containers": [{"name": "trainer", **GPU, **(trainer or {})}], **(pod or {})}
    written = {"nodes": nodes, "training": {"script": "a.py"}, "template": {"spec": spec}, "network": network}
    return _findings(written)


def about(name: str, found: list[Finding]) -> tuple[Level, str]:
    """The one finding about this variable: its level, and all it says."""
    (finding,) = [each for each in found if each.path.endswith(name)]
    return finding.level, f"{finding.message} {finding.fix}"


WARNED: list[tuple[dict[str, str], str, str]] = [
    # Unknown and misspelt.
    ({"NCCL_SOCKET_IFNAMES": "=eth0"}, "NCCL_SOCKET_IFNAMES", "Write NCCL_SOCKET_IFNAME,"),
    ({"NCCL_IB_QPS_PER_CONN": "4"}, "NCCL_IB_QPS_PER_CONN", "NCCL_IB_QPS_PER_CONNECTION"),
    ({"NCCL_ENTIRELY_UNHEARD_OF": "1"}, "NCCL_ENTIRELY_UNHEARD_OF", "no release of NCCL reads"),
    ({"NCLL_DEBUG": "INFO"}, "NCLL_DEBUG", "Write NCCL_DEBUG."),
    ({"nccl_debug": "INFO"}, "nccl_debug", "Write NCCL_DEBUG."),
    # Given up.
    ({"NCCL_MAX_NCHANNELS": "8"}, "NCCL_MAX_NCHANNELS", "Write NCCL_MAX_CTAS."),
    ({"NCCL_IB_CUDA_SUPPORT": "1"}, "NCCL_IB_CUDA_SUPPORT", "Write NCCL_NET_GDR_LEVEL."),
    ({"NCCL_TREE_THRESHOLD": "0"}, "NCCL_TREE_THRESHOLD", "NCCL 2.4 is the last that reads it"),
    ({"NCCL_WORK_FIFO_DEPTH": "1"}, "NCCL_WORK_FIFO_DEPTH", "NCCL 2.21 is the last that reads it"),
    ({"NCCL_GDRCOPY_TAIL_ENABLE": "1"}, "NCCL_GDRCOPY_TAIL_ENABLE", "NCCL 2.11 is the last"),
    ({"NCCL_ASYNC_ERROR_HANDLING": "1"}, "NCCL_ASYNC_ERROR_HANDLING", "Write TORCH_NCCL_ASYNC_ERROR_HANDLING."),
    # Prefixes.
    ({"NCCL_SOCKET_IFNAME": "eth1"}, "NCCL_SOCKET_IFNAME", "eth10 is taken, too. Write =eth1"),
    ({"NCCL_SOCKET_IFNAME": "bond0"}, "NCCL_SOCKET_IFNAME", "bond0.100"),
    ({"NCCL_SOCKET_IFNAME": "lo"}, "NCCL_SOCKET_IFNAME", "reaches no other pod"),
    ({"NCCL_SOCKET_IFNAME": "^docker0"}, "NCCL_SOCKET_IFNAME", "lets loopback in"),
    ({"NCCL_SOCKET_IFNAME": "^=docker0,eth"}, "NCCL_SOCKET_IFNAME", "Write ^=docker0,eth,lo."),
    ({"GLOO_SOCKET_IFNAME": "lo"}, "GLOO_SOCKET_IFNAME", "reaches no other pod"),
    ({"GLOO_SOCKET_IFNAME": "^lo"}, "GLOO_SOCKET_IFNAME", "no interface"),
    # A fabric whose devices the pod does not get.
    ({"FI_PROVIDER": "efa"}, "FI_PROVIDER", "spec.network.profile: AWS-EFA"),
    ({"FI_EFA_USE_DEVICE_RDMA": "1"}, "FI_EFA_USE_DEVICE_RDMA", "spec.network.profile: AWS-EFA"),
    ({"NCCL_IB_HCA": "=mlx5_0"}, "NCCL_IB_HCA", "spec.network.profile: InfiniBand or RoCE"),
    ({"UCX_NET_DEVICES": "mlx5_0:1"}, "UCX_NET_DEVICES", "turns to TCP silently"),
    # Traps.
    ({"NCCL_IB_GID_INDEX": "3"}, "NCCL_IB_GID_INDEX", "Remove it: since 2.21"),
    ({"NCCL_PROTO": "LL128"}, "NCCL_PROTO", "corrupted"),
    ({"NCCL_PROTO": "Simple,LL128"}, "NCCL_PROTO", "corrupted"),
    ({"NCCL_P2P_DISABLE": "1"}, "NCCL_P2P_DISABLE", "host memory"),
    ({"NCCL_SHM_DISABLE": "1"}, "NCCL_SHM_DISABLE", "spec.sharedMemory"),
    ({"NCCL_IB_DISABLE": "1"}, "NCCL_IB_DISABLE", "spec.network.profile: TCP"),
    ({"NCCL_DEBUG": "TRACE"}, "NCCL_DEBUG", "Write INFO"),
    ({"NCCL_DEBUG": "DEBUG"}, "NCCL_DEBUG", "no level"),
    ({"NCCL_DEBUG_FILE": "/tmp/nccl.%h"}, "NCCL_DEBUG_FILE", "%p"),
    ({"NCCL_IB_RETRY_CNT": "15"}, "NCCL_IB_RETRY_CNT", "Write 7."),
    ({"NCCL_IB_TIMEOUT": "50"}, "NCCL_IB_TIMEOUT", "Write 31."),
    # Contradictions.
    ({"NCCL_SOCKET_NTHREADS": "16", "NCCL_NSOCKS_PERTHREAD": "8"}, "NCCL_NSOCKS_PERTHREAD", "Write 4."),
    ({"NCCL_MIN_CTAS": "32", "NCCL_MAX_CTAS": "8"}, "NCCL_MIN_CTAS", "NCCL_MAX_CTAS, which is 8"),
    ({"NCCL_NET": "Socket", "NCCL_IB_TC": "41"}, "NCCL_IB_TC", "beside NCCL_NET Socket"),
    ({"NCCL_NET": "IB", "NCCL_IB_DISABLE": "1"}, "NCCL_NET", "no network is left"),
    ({"NCCL_NET": "AWS Libfabric", "NCCL_NET_PLUGIN": "none"}, "NCCL_NET", "Remove NCCL_NET_PLUGIN."),
    ({"NCCL_COLLNET_ENABLE": "1", "NCCL_NET_PLUGIN": "none"}, "NCCL_COLLNET_ENABLE", "in-network"),
    ({"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "0"}, "NCCL_MNNVL_ENABLE", "cuMem"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("env", "name", "words"), WARNED, ids=[f"{name}-{number}" for number, (_, name, _) in enumerate(WARNED)]
)
def test_a_variable_that_does_something_else_than_it_seems(env: dict[str, str], name: str, words: str) -> None:
    warned = [each for each in findings(env=env) if each.level is Level.WARNING]
    level, said = about(name, warned)
    assert (level, words in said) == (Level.WARNING, True), said


@pytest.mark.parametrize(
    ("env", "name", "words"), WARNED, ids=[f"{name}-{number}" for number, (_, name, _) in enumerate(WARNED)]
)
def test_it_is_found_in_the_template_as_well(env: dict[str, str], name: str, words: str) -> None:
    listed = [{"name": key, "value": value} for key, value in env.items()]
    path = f"spec.template.spec.containers[0].env[{list(env).index(name)}]"
    assert any(each.path == path and words in f"{each.message} {each.fix}" for each in findings({"env": listed}))


FINE: list[dict[str, str]] = [
    {"NCCL_SOCKET_IFNAME": "=eth1,eth2"},
    {"NCCL_SOCKET_IFNAME": "eth0"},
    {"NCCL_SOCKET_IFNAME": "^lo,docker1"},
    {"NCCL_SOCKET_IFNAME": "^docker0,l"},
    {"NCCL_SOCKET_IFNAME": "^=docker0,lo"},
    {"GLOO_SOCKET_IFNAME": "eth0"},
    {"FI_PROVIDER": "tcp"},
    {"NCCL_IB_HCA": "^mlx5_1"},
    {"NCCL_DEBUG": "info", "NCCL_DEBUG_FILE": "/tmp/nccl.%h.%p"},
    {"NCCL_IB_GID_INDEX": "-1"},
    {"NCCL_P2P_DISABLE": "0", "NCCL_PROTO": "^LL128"},
    {"NCCL_VERSION": "2.27.3", "NCCL_OFI_TUNER_TYPE": "Region", "NCCL_TUNER_CONFIG_PATH": "/etc/tuner"},
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "NO_PROXY": "*", "NODE_NAME": "a", "CUDA_VISIBLE_DEVICES": "0"},
    {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"},
]


@pytest.mark.parametrize("env", FINE, ids="-".join)
def test_what_is_in_order_has_no_warning(env: dict[str, str]) -> None:
    assert not [str(each) for each in findings(env=env) if each.level is not Level.ADVICE]


@pytest.mark.parametrize(("name", "warned"), [("mlx5_0,mlx5_1", True), ("=mlx5_1", False), ("mlx5", False)])
def test_a_name_of_an_adapter_is_a_prefix(name: str, warned: bool) -> None:
    found = findings({"resources": {"limits": {"nvidia.com/gpu": 8, "rdma/ib": 1}}}, env={"NCCL_IB_HCA": name})
    said = [each.fix for each in found if each.level is Level.WARNING]
    assert said == ([f"Write ={name}."] if warned else [])


EFA = {"FI_PROVIDER": "efa"}
PRIVILEGED = {"securityContext": {"privileged": True}}


@pytest.mark.parametrize(
    ("env", "trainer", "others", "warned"),
    [
        (EFA, PRIVILEGED, {"pod": {"hostNetwork": True}}, True),  # libfabric finds none: the plugin brings more
        (EFA, {}, {"nodes": 1}, False),
        (EFA, {"resources": {"limits": {"nvidia.com/gpu": 8}, "claims": [{"name": "efa"}]}}, {}, False),
        ({"NCCL_IB_HCA": "=mlx5_0"}, PRIVILEGED, {"pod": {"hostNetwork": True}}, False),
        ({"NCCL_IB_HCA": "=mlx5_0"}, {}, {"profile": "InfiniBand"}, False),
        ({"NCCL_IB_HCA": "=mlx5_0"}, {"resources": {"limits": {"nvidia.com/gpu": 8, "rdma/hca": 1}}}, {}, False),
        ({"NCCL_IB_HCA": "=mlx5_0", "NCCL_IB_DISABLE": "1"}, {}, {}, False),
    ],
)
def test_a_fabric_is_asked_for_without_its_devices(
    env: dict[str, str], trainer: dict[str, Any], others: dict[str, Any], warned: bool
) -> None:
    codes = [each.code for each in findings(trainer, env=env, **others)]
    assert ("no-fabric-devices" in codes) is warned


def on_cpus(nodes: int = 2, **env: str) -> list[Finding]:
    limits = {"resources": {"limits": {"nvidia.com/gpu": 0}}}
    return findings(limits, nodes=nodes, env=env)


@pytest.mark.parametrize("name", ["^lo,docker", "=eth0", "eth0,^lo"])
def test_gloo_fails_on_nccls_marks(name: str) -> None:
    (finding,) = on_cpus(GLOO_SOCKET_IFNAME=name)
    assert (finding.level, finding.code) == (Level.ERROR, "interface-name")


def test_a_list_for_gloo_is_advice_since_pytorch_takes_one() -> None:
    assert [each.level for each in on_cpus(GLOO_SOCKET_IFNAME="eth0,eth1")] == [Level.ADVICE]


def test_a_job_on_cpus_hears_of_loopback_in_nccls_list_too() -> None:
    warned = [each.code for each in on_cpus(NCCL_SOCKET_IFNAME="^docker0") if each.level is Level.WARNING]
    assert warned == ["loopback"]
    for others in (on_cpus(NCCL_SOCKET_IFNAME="^docker0,lo"), on_cpus(1, NCCL_SOCKET_IFNAME="^docker0")):
        assert {each.level for each in others} == {Level.ADVICE}


def test_advice_about_debugging_variables_and_new_ones() -> None:
    found = findings(env={"NCCL_BUFFSIZE": "8388608", "NCCL_SOCKET_RETRY_CNT": "3", "NCCL_IB_TC": "41"})
    assert "debugging" in about("NCCL_BUFFSIZE", found)[1]
    assert "since 2.24" in about("NCCL_SOCKET_RETRY_CNT", found)[1]
    assert {each.level for each in found} == {Level.ADVICE}
    assert len(found) == 2


@pytest.mark.parametrize(
    ("profile", "env", "warned"),
    [
        ("InfiniBand", {"NCCL_DEBUG": "WARN"}, "NCCL_DEBUG"),
        ("InfiniBand", {"NCCL_DEBUG_SUBSYS": "NET"}, "NCCL_DEBUG_SUBSYS"),
        ("InfiniBand", {"NCCL_DEBUG": "info", "NCCL_DEBUG_SUBSYS": "NET"}, None),
        ("InfiniBand", {}, None),
        ("TCP", {"NCCL_DEBUG": "WARN"}, None),
    ],
)
def test_a_fabric_that_is_to_be_watched_needs_nccls_report(
    profile: str, env: dict[str, str], warned: str | None
) -> None:
    for require in (False, True) if profile != "TCP" else (False,):
        found = [
            each for each in findings(env=env, profile=profile, require=require) if "stays unknown" in each.message
        ]
        assert [each.path for each in found] == ([f"spec.network.env.{warned}"] if warned else [])
        assert all(("stops nothing" in each.message) is require for each in found)


def test_a_value_that_comes_from_elsewhere_is_not_judged() -> None:
    env = [{"name": "NCCL_P2P_DISABLE", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}]
    assert not [each for each in findings({"env": env}) if each.level is Level.WARNING]


def test_the_same_variable_twice_says_which_holds() -> None:
    trainer = {"env": [{"name": "NCCL_DEBUG", "value": "WARN"}]}
    level, said = about("network.env.NCCL_DEBUG", findings(trainer, env={"NCCL_DEBUG": "INFO"}))
    assert (level, "env[0] sets another value, which is used" in said) == (Level.WARNING, True)
    level, said = about("interface", findings(interface="eth0", env={"NCCL_SOCKET_IFNAME": "=eth1"}))
    assert "=eth1" in said


@pytest.mark.parametrize("name", ["DEEPSPEED_OPERATOR_INDEX", "a=b", "1A", ""])
def test_names_that_no_container_can_have_are_errors(name: str) -> None:
    (error,) = [each for each in findings(env={name: "1"}) if each.level is Level.ERROR]
    assert error.path.startswith("spec.network.env[")


@pytest.mark.parametrize(
    ("resource", "warned"),
    [("habana.ai/gaudi", True), ("gpu.intel.com/xe", True), ("huawei.com/Ascend910", True), ("amd.com/gpu", False)],
)
def test_nccls_variables_do_nothing_on_other_libraries(resource: str, warned: bool) -> None:
    found = findings({"resources": {"limits": {resource: 8}}}, env={"NCCL_DEBUG": "INFO", "NCCL_RCCL_ONLY": "1"})
    assert [each.path for each in found] == (["spec.network.env.NCCL_DEBUG"] if warned else [])
    assert all("has no effect here" in each.message for each in found)


def said_of(profile: str, trainer: dict[str, Any] | None = None, **others: Any) -> dict[Level, str]:
    """All that is said of the profile, by level."""
    found = [each for each in findings(trainer, profile=profile, **others) if each.path == "spec.network.profile"]
    return {level: " ".join(map(str, (each for each in found if each.level is level))) for level in Level}


def test_what_a_profile_needs_of_the_namespace_the_node_and_the_memory_is_said() -> None:
    said = said_of("InfiniBand")[Level.ADVICE]
    for words in ("Pod Security level privileged", "capability IPC_LOCK", "memlock", "/dev/shm (here: up to the node"):
        assert words in said
    limited = {"resources": {"limits": {"nvidia.com/gpu": 8, "rdma/ib": 1, "memory": "512Gi"}}}
    assert "/dev/shm (here: 512Gi" in said_of("InfiniBand", limited)[Level.ADVICE]
    assert "rdma/ib: 1 is requested" in said
    assert "is requested" not in said_of("InfiniBand", limited)[Level.ADVICE]


@pytest.mark.parametrize("profile", NetworkProfile)
def test_a_profile_alone_gives_no_warning_but_for_what_only_the_template_can_bring(profile: NetworkProfile) -> None:
    warned = said_of(profile)[Level.WARNING]
    assert bool(warned) == (profile in {"NVLink", "RoCE", "MNNVL", "AWS-EFA"}), warned


def test_what_the_template_can_bring_ends_these_warnings() -> None:
    claimed = {"resources": {"limits": {"nvidia.com/gpu": 4}, "claims": [{"name": "domain"}]}}
    assert not said_of("MNNVL", claimed)[Level.WARNING]
    assert not said_of("RoCE", pod={"hostNetwork": True})[Level.WARNING]
    assert not said_of("NVLink", nodes=1)[Level.WARNING]
    machine = {"nodeSelector": {"node.kubernetes.io/instance-type": "p5.48xlarge"}}
    assert not said_of("AWS-EFA", pod=machine)[Level.WARNING]


@pytest.mark.parametrize(
    ("context", "warned"),
    [({"runAsUser": 1000}, True), ({"runAsNonRoot": True}, True), ({"runAsUser": 0}, False), ({}, False)],
)
def test_ipc_lock_does_nothing_for_other_users_than_root(context: dict[str, Any], warned: bool) -> None:
    assert ("IPC_LOCK has no effect" in said_of("InfiniBand", {"securityContext": context})[Level.WARNING]) is warned
    pod = {"securityContext": context}
    assert ("IPC_LOCK has no effect" in said_of("InfiniBand", pod=pod)[Level.WARNING]) is warned


def test_the_users_values_hold_and_are_told() -> None:
    level, said = about("NCCL_IB_TC", findings(profile="OCI-RoCE", env={"NCCL_IB_TC": "105"}))
    assert (level, said) == (Level.ADVICE, '"105" holds, in place of the profile\'s "41". ')


def test_rdma_that_is_asked_for_and_prevented() -> None:
    found = findings(profile="InfiniBand", env={"NCCL_IB_DISABLE": "1"})
    assert any("contradicts the profile" in each.message for each in found)
    found = findings(profile="RoCE", env={"NCCL_NET": "Socket"})
    assert any("contradicts the profile" in each.message for each in found)


def test_efa_has_no_use_for_ib_variables_and_is_broken_by_host_devices() -> None:
    trainer = {"resources": {"limits": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}}}
    pod = {"volumes": [{"name": "ib", "hostPath": {"path": "/dev/infiniband"}}]}
    found = findings(trainer, pod, env={"NCCL_IB_TC": "1", "FI_PROVIDER": "efa"})
    assert "libfabric" in about("NCCL_IB_TC", found)[1]
    assert "Remove it." in about("FI_PROVIDER", found)[1]
    assert about("volumes[0].hostPath", found)[0] is Level.WARNING


def test_huge_pages_that_kubernetes_would_refuse_are_told() -> None:
    machine = {"nodeSelector": {"node.kubernetes.io/instance-type": "p5.48xlarge"}}
    sized = {"resources": {"limits": {"nvidia.com/gpu": 8, "memory": "64Gi"}}}
    assert "hugepages-2Mi is left out" in said_of("AWS-EFA", pod=machine)[Level.ADVICE]
    assert "left out" not in said_of("AWS-EFA", sized, pod=machine)[Level.ADVICE]
    unknown = said_of("AWS-EFA", sized)[Level.WARNING]
    assert "vpc.amazonaws.com/efa: 1 is requested, of more" in unknown
    assert "p6e-gb200.36xlarge 4" in unknown


@pytest.mark.parametrize(
    ("device", "named"), [("rdma/hca", "InfiniBand or RoCE"), ("vpc.amazonaws.com/efa", "AWS-EFA")]
)
def test_devices_of_a_fabric_that_the_job_does_not_name(device: str, named: str) -> None:
    trainer = {"resources": {"limits": {"nvidia.com/gpu": 8, device: 1}}}
    (finding,) = findings(trainer)
    assert (finding.level, finding.path) == (Level.ADVICE, "spec.network.profile")
    assert finding.fix == f"Write {named}, or your cloud's."
    assert findings(trainer, nodes=1) == []
    (finding,) = findings(trainer, profile="TCP")
    assert (finding.level, finding.path) == (Level.WARNING, "spec.network.profile")
    assert about("NCCL_NET", findings(trainer, env={"NCCL_NET": "Socket"}))[0] is Level.WARNING


def test_too_little_shared_memory_for_nccl() -> None:
    for size, warned in (("512Mi", True), ("1Gi", False), (2**20, True), ("1.5G", False)):
        written = {"training": {"script": "a.py"}, "sharedMemory": size}
        found = _findings(written)
        assert [each.path for each in found] == (["spec.sharedMemory"] if warned else [])


def test_a_job_that_says_nothing_of_its_network_hears_nothing() -> None:
    assert findings() == []
    assert _findings({"training": {"script": "a.py"}}) == []
