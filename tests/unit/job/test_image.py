"""What the ranks run on: the template's word, else the worker image's, else the install's default."""

from typing import Any

import pytest

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import AcceleratorSource, WorldAccelerator
from deepspeed_operator.job.image import given_accelerator
from deepspeed_operator.job.installation import Installation

WORKER, OWN = "registry.example.com/worker:1", "registry.example.com/llm:1"
TEMPLATE, WORKER_IMAGE, DEFAULT = AcceleratorSource


def given(limits: dict[str, Any] | None, image: str | None, **installation: Any) -> WorldAccelerator:
    trainer = {"name": "trainer", **({"resources": {"limits": limits}} if limits is not None else {})}
    written = {"training": {"script": "train.py"}, "template": {"spec": {"containers": [trainer]}}, "image": image}
    spec = DeepSpeedJobSpec.model_validate({key: value for key, value in written.items() if value is not None})
    return given_accelerator(spec, Installation("UEsFBg==", WORKER, **installation))


@pytest.mark.parametrize(
    ("limits", "image", "installation", "expected"),
    [
        (None, None, {}, ("cpu", None, WORKER_IMAGE)),
        (None, WORKER, {}, ("cpu", None, WORKER_IMAGE)),
        (None, None, {"worker_accelerator": "amd.com/gpu"}, ("rocm", "amd.com/gpu", WORKER_IMAGE)),
        (None, OWN, {}, ("cuda", "nvidia.com/gpu", DEFAULT)),
        (None, OWN, {"default_accelerator": "cpu"}, ("cpu", None, DEFAULT)),
        ({"memory": "8Gi"}, OWN, {}, ("cuda", "nvidia.com/gpu", DEFAULT)),
        ({"nvidia.com/gpu": 0}, OWN, {}, ("cpu", None, TEMPLATE)),
        ({"nvidia.com/gpu": 8}, None, {}, ("cuda", None, TEMPLATE)),
        ({"habana.ai/gaudi": 8}, OWN, {"default_accelerator": "cpu"}, ("hpu", None, TEMPLATE)),
    ],
)
def test_who_says_what_the_ranks_run_on(
    limits: dict[str, Any] | None,
    image: str | None,
    installation: dict[str, Any],
    expected: tuple[str, str | None, AcceleratorSource],
) -> None:
    found = given(limits, image, **installation)
    assert (found.name, found.resource, found.source) == expected
