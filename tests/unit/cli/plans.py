"""What `dsjob plan` says of a job: Llama 7B on 8 GPUs."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.unit.cli.command import dsjob

ROOT = Path(__file__).parents[3]
LLAMA_7B: dict[str, Any] = yaml.safe_load((ROOT / "examples/llama-7b.yaml").read_text())
CONFIG = {"train_batch_size": 32, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}


def job(*, gpu: str = "nvidia.com/gpu", template: dict[str, Any] | None = None, **spec: Any) -> str:
    """Llama 7B on 8 GPUs, of which nothing is said but what is given."""
    found = json.loads(json.dumps(LLAMA_7B))
    pod = found["spec"]["template"]["spec"]
    del pod["nodeSelector"]
    pod |= template or {}
    pod["containers"][0]["resources"]["limits"] = {gpu: 8}
    for field, value in spec.items():
        inside = field in ("model", "dsConfig")
        found["spec"][field] = {**found["spec"][field], **value} if inside else value
    return json.dumps(found)


@cache
def recorded(text: str, *arguments: object) -> dict[str, Any]:
    result = dsjob("plan", "-", *arguments, "-o", "json", stdin=text)
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)[0]


@cache
def shown(text: str, *arguments: object) -> str:
    result = dsjob("plan", "-", *arguments, stdin=text)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def sources(found: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    return {fact["name"]: (fact["value"], fact["source"]) for fact in found["facts"]}


def line(out: str, begin: str) -> str:
    return next(each for each in out.splitlines() if each.strip().startswith(begin))


def selector(product: str) -> dict[str, Any]:
    return {"nodeSelector": {"nvidia.com/gpu.product": product}}


def affinity(*products: str) -> dict[str, Any]:
    wanted = {"key": "nvidia.com/gpu.product", "operator": "In", "values": list(products)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
