"""How a job starts and how its ranks leave, as the kubelet and the pods' own words tell it."""

from collections.abc import Callable

import pytest

from tests.e2e.jobs import NO_GPU, SHORT_GRACE, job, ranks, script
from tests.e2e.kube import Json, Namespace, eventually


@pytest.fixture(scope="module")
def namespace(make_namespace: Callable[..., Namespace]) -> Namespace:
    made = make_namespace("starts")
    made.config_map("rank", script("rank.py"))
    made.config_map("uneven", script("uneven.py"))
    return made


def warned(told: list[Json]) -> list[str]:
    """Warnings, but for a busy machine's: a kubelet gives a ConfigMap a second to come, and an agent one to begin."""
    slow = ("failed to sync", "connect: connection refused")
    found = [f"{event['reason']}: {event['message']}" for event in told if event["type"] == "Warning"]
    return [warning for warning in found if not any(words in warning for words in slow)]


def test_nothing_warns_of_a_healthy_job_from_its_start_to_its_end(namespace: Namespace, plain: str) -> None:
    namespace.apply(ranks("healthy", plain, "sleep=5"))
    namespace.completed("healthy")
    names = {"healthy", "healthy-1-0", "healthy-1-1"}
    namespace.told("healthy", "Completed")
    told = [event for event in namespace.all_events() if event["involvedObject"]["name"] in names]
    assert {event["involvedObject"]["name"] for event in told} == names
    assert warned(told) == []


def test_pods_are_not_ready_before_all_ranks_may_begin(namespace: Namespace, plain: str) -> None:
    """The second pod has no node: the first one runs and waits, without a word of failing probes."""
    lonely = ranks("lonely", plain, "sleep=60")
    spread = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/os",
        "labelSelector": {"matchLabels": {"deepspeed-operator.dev/job-name": "lonely"}},
    }]}}  # fmt: skip
    lonely["spec"]["template"]["spec"]["affinity"] = spread
    namespace.apply(lonely)

    def first_runs() -> bool:
        states = [pod["status"].get("containerStatuses", [{}])[0] for pod in namespace.pods("lonely")]
        return any("running" in state.get("state", {}) for state in states)

    eventually(first_runs, lambda: namespace.report("lonely"), 60)
    namespace.wait("lonely", lambda found: found.reason("Running") == "Unschedulable")
    assert not any(
        state["ready"] for pod in namespace.pods("lonely") for state in pod["status"].get("containerStatuses", [])
    )
    told = [event for event in namespace.all_events() if event["involvedObject"]["name"].startswith("lonely")]
    assert [warning for warning in warned(told) if warning.startswith("Unhealthy")] == []
    namespace.delete("lonely", "--wait=false")


def test_a_rank_that_leaves_with_0_is_named_and_not_the_other_ones_broken_connection(
    namespace: Namespace, image: Callable[[str], str]
) -> None:
    training = {"script": "uneven.py", "files": {"configMap": "uneven"}}
    namespace.apply(job("uneven", image("worker"), training=training, trainer={"resources": NO_GPU}))
    failed = namespace.ended("uneven", 150)
    report = namespace.report("uneven")
    assert failed.reason("Failed") == "RankLeft", report
    assert (failed.failure["rank"], failed.failure["pod"], failed.failure["exitCode"]) == (1, "uneven-1-1", 0), report
    said = failed.message("Failed")
    assert "left with exit code 0 while the others trained: rank 0 then failed: RuntimeError" in said
    assert "(rank 1 in pod uneven-1-1)" in said, "the address is told as whose it is"
    assert "no more batches" in failed.failure["message"]


def test_a_pod_that_is_deleted_as_its_container_starts_does_not_wait_out_its_grace(
    namespace: Namespace, plain: str
) -> None:
    manifest = ranks("deleted", plain, "sleep=60")
    manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 60 * SHORT_GRACE
    namespace.apply(manifest)

    def started() -> bool:
        states = [pod["status"].get("containerStatuses", [{}])[0] for pod in namespace.pods("deleted")]
        return any("running" in state.get("state", {}) for state in states)

    eventually(started, lambda: namespace.report("deleted"), 60)
    namespace.delete("deleted", "--wait=false")
    namespace.gone("deleted", 60)
