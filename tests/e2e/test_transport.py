"""What the network really does is in status: TCP instead of the fabric within a minute; gloo is not taken for it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.jobs import NO_GPU, job, ranks, script
from tests.e2e.kube import Job, Json, Namespace

SOCKET_LOG = Path(__file__).parents[1] / "unit/agent/nccl/2.28-socket.log"
SEEN_WITHIN_SECONDS = 60
FABRIC = {"profile": "NVLink"}


@pytest.fixture(scope="module")
def namespace(make_namespace: Callable[..., Namespace]) -> Namespace:
    made = make_namespace("transport")
    made.config_map("report", {**script("nccl_report.py"), "nccl.log": SOCKET_LOG.read_text()})
    made.config_map("all-reduce", script("all_reduce.py"))
    return made


def reporting(name: str, image: str, seconds: int, **network: Any) -> Json:
    """Two nodes whose NCCL reports that it uses TCP."""
    training = {"script": "nccl_report.py", "args": ["nccl.log", str(seconds)], "files": {"configMap": "report"}}
    return ranks(name, image, training=training, network=network)


def on_gloo(name: str, image: str, **network: Any) -> Json:
    training = {"script": "all_reduce.py", "files": {"configMap": "all-reduce"}}
    return job(name, image, training=training, trainer={"resources": NO_GPU}, network=network)


@pytest.fixture(scope="module")
def jobs(namespace: Namespace, image: Callable[[str], str]) -> dict[str, Job]:
    """All jobs of this module as they ended, by name."""
    plain, worker = image("plain-python"), image("worker")
    manifests = [
        reporting("short", plain, 0, **FABRIC),
        reporting("required", plain, 120, **FABRIC, require=True),
        reporting("any", plain, 0),
        on_gloo("gloo", worker, preflight="Bandwidth"),
        on_gloo("too-slow", worker, preflight="Bandwidth", minimumBusBandwidth="1T"),
    ]

    names = [manifest["metadata"]["name"] for manifest in manifests]

    def run(manifest: Json) -> Job:
        namespace.apply(manifest)
        return namespace.ended(manifest["metadata"]["name"], 150)

    with ThreadPoolExecutor(3) as pool:
        return dict(zip(names, pool.map(run, manifests), strict=True))


def test_tcp_instead_of_the_fabric_is_seen_while_the_job_runs(
    namespace: Namespace, image: Callable[[str], str]
) -> None:
    namespace.apply(reporting("long", image("plain-python"), 100, **FABRIC))
    namespace.running("long")
    seen = namespace.wait(
        "long", lambda job: job.status.get("transport", {}).get("state") == "Socket", SEEN_WITHIN_SECONDS
    )
    assert seen.holds("Running")
    assert seen.status["transport"]["links"][0]["devices"] == ["lo"]
    (event,) = namespace.told("long", "TransportMismatch")
    assert event["type"] == "Warning"
    assert "NET/Socket (lo) between nodes" in event["message"]
    assert any(finding["message"].startswith("NCCL reports NET/Socket") for finding in seen.status["findings"])
    namespace.delete("long")


def test_a_job_that_ends_at_once_still_says_it_and_warns(namespace: Namespace, jobs: dict[str, Job]) -> None:
    assert jobs["short"].outcome == "Complete", namespace.report("short")
    assert jobs["short"].status["transport"]["state"] == "Socket"
    assert len(namespace.told("short", "TransportMismatch")) == 1


def test_a_required_fabric_ends_the_job_with_that_reason(namespace: Namespace, jobs: dict[str, Job]) -> None:
    ended = jobs["required"]
    assert ended.outcome == "Failed", namespace.report("required")
    assert ended.failure["reason"] == ended.reason("Failed") == "TransportMismatch"
    assert "NET/Socket (lo)" in ended.failure["message"]
    assert "docs/transport.md" in ended.message("Failed")


def test_without_a_profile_tcp_is_no_news(namespace: Namespace, jobs: dict[str, Job]) -> None:
    assert jobs["any"].status["transport"]["state"] == "Socket", namespace.report("any")
    namespace.told("any", "Completed")
    assert "TransportMismatch" not in {event["reason"] for event in namespace.events("any")}


def test_gloo_is_unknown_and_its_bandwidth_measured(namespace: Namespace, jobs: dict[str, Job]) -> None:
    assert jobs["gloo"].outcome == "Complete", namespace.report("gloo")
    transport = jobs["gloo"].status["transport"]
    assert (transport["state"], transport["links"]) == ("Unknown", [])
    assert transport["busBandwidth"] > 1_000_000
    assert "gloo all-reduce of 1 MiB" in namespace.log("gloo-1-0")


def test_a_network_that_is_too_slow_fails_before_the_ranks_start(namespace: Namespace, jobs: dict[str, Job]) -> None:
    ended = jobs["too-slow"]
    assert ended.outcome == "Failed", namespace.report("too-slow")
    assert ended.failure["reason"] == "PreflightFailed"
    assert "asks for 1000.000 GB/s; an all-reduce of 2 ranks over gloo reaches" in ended.failure["message"]
    assert "sum of 2 ranks" not in namespace.log("too-slow-1-0")
