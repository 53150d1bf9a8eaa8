"""DeepSpeedJobs of the tests, as a user writes them."""

import copy
from pathlib import Path
from typing import Any

from tests.e2e.kube import Json

SCRIPTS = Path(__file__).parent / "scripts"
NO_GPU: Json = {"limits": {"nvidia.com/gpu": 0, "cpu": "1"}, "requests": {"cpu": "10m"}}

# DeepSpeed decorates a function of Muon with torch.compile, whose imports are a quarter of a small rank's work.
EAGER: list[Json] = [{"name": "TORCHDYNAMO_DISABLE", "value": "1"}]

# The first failure, whatever it is, ends the run.
NO_RESTARTS: Json = {"maxInfrastructureRestarts": 0}
# Ends at once: a test that stops pods need not wait out the default 30 seconds.
SHORT_GRACE = 7


def script(name: str) -> dict[str, str]:
    """A ConfigMap's data: one file of scripts/."""
    return {name: (SCRIPTS / name).read_text()}


def job(
    name: str, image: str, *, training: Json, trainer: Json | None = None, pod: Json | None = None, **spec: Any
) -> Json:
    """A job whose template holds a trainer container with these fields, in a pod with these fields."""
    pod = copy.deepcopy(pod or {})
    containers = [{"name": "trainer", **(trainer or {})}, *pod.pop("containers", [])]
    return {
        "apiVersion": "deepspeed-operator.dev/v1alpha1",
        "kind": "DeepSpeedJob",
        "metadata": {"name": name},
        "spec": {
            "nodes": 2,
            "image": image,
            "training": training,
            "template": {"spec": {"terminationGracePeriodSeconds": SHORT_GRACE, **pod, "containers": containers}},
            **spec,
        },
    }


def ranks(
    name: str, image: str, *actions: str, training: Json | None = None, trainer: Json | None = None, **more: Any
) -> Json:
    """A job of torch-free ranks that do what scripts/rank.py reads from these actions; it uses no GPU."""
    default = {"script": "rank.py", "args": list(actions), "files": {"configMap": "rank"}}
    resources = {"resources": NO_GPU}
    return job(name, image, training={**default, **(training or {})}, trainer={**resources, **(trainer or {})}, **more)


def deepspeed(
    name: str, image: str, *, stage: int = 0, training: Json | None = None, trainer: Json | None = None, **more: Any
) -> Json:
    """A job of scripts/train.py: fp32, eight samples a step, of which a rank takes 2 × 2."""
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
        "zero_optimization": {"stage": stage},
    }
    default = {"script": "train.py", "args": ["--config", "$(DEEPSPEED_CONFIG)"], "files": {"configMap": "train"}}
    trainer = {**(trainer or {}), "env": [*EAGER, *(trainer or {}).get("env", [])]}
    return job(name, image, training={**default, **(training or {})}, trainer=trainer, dsConfig=config, **more)
