"""Which GPU a label names."""

from typing import Any

import pytest

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.job.accelerators import NVIDIA_GPU
from deepspeed_operator.job.gpus import declared_gpus, gpu_request
from deepspeed_operator.job.node_selection import LabelledNode

PRODUCT, MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"
GKE, MACHINE = "cloud.google.com/gke-accelerator", "node.kubernetes.io/instance-type"
MIB = 2**20


def spec_of(limits: dict[str, Any] | None = None, selector: dict[str, str] | None = None) -> DeepSpeedJobSpec:
    trainer = {"name": "trainer", "resources": {"limits": limits or {"nvidia.com/gpu": 8}}}
    template = {"spec": {"nodeSelector": selector or {}, "containers": [trainer]}}
    return DeepSpeedJobSpec.model_validate({"training": {"script": "train.py"}, "template": template})


def kinds(labels: dict[str, str], limits: dict[str, Any] | None = None) -> list[tuple[str, int]]:
    """Return names and MiB of the GPUs of a node with these labels."""
    request = gpu_request(spec_of(limits), NVIDIA_GPU)
    assert request is not None
    return [(kind.name, kind.memory // MIB) for kind in request.kinds([LabelledNode("node", labels)])]


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ({PRODUCT: "NVIDIA-H100-80GB-HBM3", MEMORY: "81559"}, [("NVIDIA-H100-80GB-HBM3", 81_559)]),
        ({PRODUCT: "NVIDIA-H100-80GB-HBM3"}, [("NVIDIA-H100-80GB-HBM3", 81_559)]),
        ({PRODUCT: "NVIDIA-H100-NVL"}, [("NVIDIA-H100-NVL", 95_830)]),
        ({PRODUCT: "NVIDIA-A100-SXM4-80GB"}, [("NVIDIA-A100-SXM4-80GB", 81_920)]),
        ({PRODUCT: "NVIDIA-A100-PCIE-40GB"}, [("NVIDIA-A100-PCIE-40GB", 40_960)]),
        ({PRODUCT: "NVIDIA-H200"}, [("NVIDIA-H200", 143_771)]),
        ({PRODUCT: "NVIDIA-GH200-480GB"}, [("NVIDIA-GH200-480GB", 0)]),
        ({PRODUCT: "NVIDIA-GB200", MEMORY: "189471"}, [("NVIDIA-GB200", 189_471)]),
        ({PRODUCT: "GeForce-GT-710", MEMORY: "lots"}, [("GeForce-GT-710", 0)]),
        ({GKE: "nvidia-tesla-a100"}, [("nvidia-tesla-a100", 40_960)]),
        ({GKE: "nvidia-a100-80gb"}, [("nvidia-a100-80gb", 81_920)]),
        ({GKE: "nvidia-h100-mega-80gb", MACHINE: "a3-megagpu-8g"}, [("nvidia-h100-mega-80gb", 81_559)]),
        ({PRODUCT: "NVIDIA-GeForce-RTX-4090"}, [("NVIDIA-GeForce-RTX-4090", 24_564)]),
        ({PRODUCT: "NVIDIA-GeForce-RTX-3090-Ti"}, [("NVIDIA-GeForce-RTX-3090-Ti", 0)]),
        ({PRODUCT: "NVIDIA-RTX-A6000"}, [("NVIDIA-RTX-A6000", 49_140)]),
        ({GKE: "nvidia-l4"}, [("nvidia-l4", 23_034)]),
        ({MACHINE: "p5.48xlarge"}, [("p5.48xlarge", 81_559)]),
        ({MACHINE: "p5en.48xlarge"}, [("p5en.48xlarge", 143_771)]),
        ({MACHINE: "Standard_ND96amsr_A100_v4"}, [("Standard_ND96amsr_A100_v4", 81_920)]),
        ({MACHINE: "BM.GPU4.8"}, [("BM.GPU4.8", 40_960)]),
        ({MACHINE: "m5.large"}, []),
        ({"kubernetes.io/hostname": "node"}, []),
    ],
)
def test_labels_tell_the_gpu(labels: dict[str, str], found: list[tuple[str, int]]) -> None:
    assert kinds(labels) == found


@pytest.mark.parametrize(
    "labels",
    [
        {PRODUCT: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"},
        {PRODUCT: "NVIDIA-A100-SXM4-40GB-SHARED", MEMORY: "40960"},
        {PRODUCT: "NVIDIA-A100-SXM4-40GB", MEMORY: "40960", "nvidia.com/gpu.sharing-strategy": "time-slicing"},
        {GKE: "nvidia-a100-80gb", "cloud.google.com/gke-gpu-partition-size": "1g.10gb"},
        {GKE: "nvidia-a100-80gb", "cloud.google.com/gke-gpu-sharing-strategy": "mps"},
    ],
)
def test_of_a_gpu_that_is_cut_or_shared_the_memory_is_not_known(labels: dict[str, str]) -> None:
    assert [size for _, size in kinds(labels)] == [0]


def test_a_cut_gpu_whose_parts_are_labelled_is_known() -> None:
    single = {PRODUCT: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", MEMORY: "4864"}
    assert kinds(single) == [("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 4864)]
    mixed = {PRODUCT: "NVIDIA-A100-SXM4-40GB", MEMORY: "40960", "nvidia.com/mig-3g.20gb.memory": "19968"}
    assert kinds(mixed, {"nvidia.com/mig-3g.20gb": 1}) == [("nvidia.com/mig-3g.20gb", 19_968)]
    assert kinds(mixed, {"nvidia.com/mig-1g.5gb": 1}) == []


def test_a_node_with_too_few_gpus_is_none_where_the_pod_may_land() -> None:
    labels = {PRODUCT: "NVIDIA-H200", "nvidia.com/gpu.count": "4"}
    assert kinds(labels) == []
    assert kinds(labels, {"nvidia.com/gpu": 4}) == [("NVIDIA-H200", 143_771)]


@pytest.mark.parametrize(
    "limits", [{"amd.com/gpu": 8}, {"nvidia.com/gpu": 0}, {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 1}]
)
def test_of_other_devices_nothing_is_asked(limits: dict[str, Any]) -> None:
    assert gpu_request(spec_of(limits), NVIDIA_GPU) is None


def test_labels_that_a_template_demands_need_no_node() -> None:
    found = declared_gpus(spec_of(selector={GKE: "nvidia-l4"}), NVIDIA_GPU)
    assert found is not None
    assert (found.smallest // MIB, found.source_of(found.smallest)) == (23_034, "Declared: nvidia-l4")
    assert declared_gpus(spec_of(selector={"pool": "gpu"}), NVIDIA_GPU) is None
    assert declared_gpus(spec_of({"nvidia.com/mig-1g.5gb": 1}, {PRODUCT: "NVIDIA-A100-SXM4-40GB"}), NVIDIA_GPU) is None
