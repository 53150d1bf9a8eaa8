"""What the ranks run on follows from what the template says of accelerators."""

from typing import Any

import pytest

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.job.accelerators import CPU, NVIDIA_GPU, accelerator_of, library_of


def spec_with(**trainer: Any) -> DeepSpeedJobSpec:
    template = {"spec": {"containers": [{"name": "trainer", **trainer}]}}
    return DeepSpeedJobSpec.model_validate({"training": {"script": "train.py"}, "template": template})


def limits(**quantities: Any) -> dict[str, Any]:
    return {
        "resources": {"limits": {name.replace("__", "/").replace("_", "."): each for name, each in quantities.items()}}
    }


CASES: list[tuple[dict[str, Any], str | None]] = [
    ({}, "cuda"),
    (limits(memory="8Gi"), "cuda"),
    (limits(nvidia_com__gpu=0), "cpu"),
    (limits(nvidia_com__gpu="8"), "cuda"),
    (limits(amd_com__gpu=8), "rocm"),
    (limits(habana_ai__gaudi=8), "hpu"),
    (limits(gpu_intel_com__xe=2), "xpu"),
    (limits(huawei_com__Ascend910=8), "npu"),
    (limits(nvidia_com__gpu=0, amd_com__gpu=1), "rocm"),
    (limits(nvidia_com__gpu=1, amd_com__gpu=1), None),
    ({"resources": {"claims": [{"name": "gpu"}]}}, None),
    ({"env": [{"name": "DS_ACCELERATOR", "value": "cpu"}], **limits(nvidia_com__gpu=8)}, "cpu"),
    ({"env": [{"name": "DS_ACCELERATOR", "valueFrom": {}}], **limits(nvidia_com__gpu=8)}, "cuda"),
]


@pytest.mark.parametrize(("trainer", "name"), CASES)
def test_the_accelerator(trainer: dict[str, Any], name: str | None) -> None:
    assert accelerator_of(spec_with(**trainer), NVIDIA_GPU) == name


@pytest.mark.parametrize(("default", "name"), [(NVIDIA_GPU, "cuda"), ("amd.com/gpu", "rocm"), (CPU, "cpu")])
def test_without_a_word_in_the_template_the_default_decides(default: str, name: str) -> None:
    silent = DeepSpeedJobSpec.model_validate({"training": {"script": "train.py"}})
    assert accelerator_of(silent, default) == accelerator_of(spec_with(**limits(memory="8Gi")), default) == name
    assert accelerator_of(spec_with(**limits(habana_ai__gaudi=8)), default) == "hpu"


LIBRARIES: list[tuple[dict[str, Any], str | None, str | None]] = [
    (limits(nvidia_com__gpu=8), "NCCL", "NCCL_"),
    ({"resources": {"limits": {"nvidia.com/mig-3g.40gb": 2}}}, "NCCL", "NCCL_"),
    (limits(amd_com__gpu=8), "RCCL", "NCCL_"),
    (limits(gpu_intel_com__i915=2), "oneCCL", "CCL_"),
    (limits(habana_ai__gaudi=8), "HCCL (Gaudi)", "HCCL_"),
    (limits(huawei_com__Ascend910=8), "HCCL (Ascend)", "HCCL_"),
    (limits(nvidia_com__gpu=0), "gloo", "GLOO_"),
    ({"resources": {"claims": [{"name": "gpu"}]}}, None, None),
]


@pytest.mark.parametrize(("trainer", "name", "prefix"), LIBRARIES)
def test_the_collective_library(trainer: dict[str, Any], name: str | None, prefix: str | None) -> None:
    library = library_of(accelerator_of(spec_with(**trainer), NVIDIA_GPU))
    assert (library and library.name, library and library.prefix) == (name, prefix)
