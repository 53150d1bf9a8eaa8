"""The GPU of a job that does not name it is known by its nodes' labels, where the operator may read them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dev.cluster.cluster import Cluster
from tests.faults.jobs import Jobs
from tests.faults.proxy import Answer, Forward, Proxy, Request, refusal
from tests.faults.replica import Replica

NODES = "/api/v1/nodes"
FACTS: dict[str, Any] = {
    "deepspeedVersion": "0.19.8",
    "dsConfig": {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": {"stage": 2},
    },
    "model": {
        "parameters": 1_300_000_000,
        "trainableParameters": 1_300_000_000,
        "layers": 24,
        "hiddenSize": 2048,
        "vocabulary": 32000,
        "sequenceLength": 1024,
        "attention": "SDPA",
        "activationCheckpointing": False,
    },
}

pytestmark = pytest.mark.disrupts


@pytest.fixture
def labelled(simulated: Cluster) -> Iterator[None]:
    """Of the simulated nodes one has H100s, and another GPUs on which nothing fits."""
    kinds = {"kwok-0": ("NVIDIA-H100-80GB-HBM3", "81559"), "kwok-1": ("GRID-T4-1Q", "1024")}
    for node, (product, memory) in kinds.items():
        label(simulated, node, product, memory)
    yield
    for node in kinds:
        label(simulated, node, None, None)


def label(cluster: Cluster, node: str, product: str | None, memory: str | None) -> None:
    labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": memory}
    cluster.api.request("PATCH", f"{NODES}/{node}", {"metadata": {"labels": labels}})


def on(*nodes: str) -> dict[str, Any]:
    """Return the fields of a job that may land on these simulated nodes."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    pod = {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
        "containers": [{"name": "trainer"}],
    }
    return {"template": {"spec": pod}, **FACTS}


def test_nodes_are_listed_once_for_all_jobs_and_without_their_states(
    replica: Replica, jobs: Jobs, proxy: Proxy, labelled: None
) -> None:
    lists: list[str] = []

    async def watched(request: Request, forward: Forward) -> Answer:
        answer = await forward()
        if request.path == NODES:
            lists.append(json.loads(answer.body)["kind"])
        return answer

    proxy.intercept = watched
    replica.start("--read-nodes")
    jobs.apply("large", 1, **on("kwok-0"))
    jobs.apply("small", 1, **on("kwok-1"), admission="RequireFit")
    jobs.apply("either", 1, **on("kwok-0", "kwok-1"))
    jobs.apply("declared", 1, **on("kwok-1"), gpuMemory="80Gi")
    replica.eventually(lambda: all(jobs.running(name) for name in ("large", "either", "declared")), 20)
    replica.eventually(lambda: jobs.condition("Accepted", "small").get("reason") == "DoesNotFit", 10)
    fits = {name: jobs.condition("MemoryFit", name) for name in ("large", "small", "either", "declared")}
    assert [fit["status"] for fit in fits.values()] == ["True", "False", "Unknown", "True"]
    assert "(NodeLabels: NVIDIA-H100-80GB-HBM3)" in fits["large"]["message"]
    assert "Open: which of the GPUs its ranks get." in fits["either"]["message"]
    assert lists == ["PartialObjectMetadataList"]


def test_without_the_right_jobs_run_and_it_is_said_once(
    replica: Replica, jobs: Jobs, proxy: Proxy, labelled: None
) -> None:
    async def forbidden(request: Request, forward: Forward) -> Answer:
        return refusal(403, "Forbidden") if request.path == NODES else await forward()

    proxy.intercept = forbidden
    replica.start("--read-nodes")
    for name in ("one", "two"):
        jobs.apply(name, 1, **on("kwok-0"))
    replica.eventually(lambda: jobs.running("one") and jobs.running("two"), 20)
    assert jobs.condition("MemoryFit", "one")["status"] == "Unknown"
    assert replica.log.count("Nodes may not be listed") == 1
