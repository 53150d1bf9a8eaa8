"""A PodDisruptionBudget over a job's pods lets a drain go on, one pod at a time."""

import json
from collections.abc import Callable

import pytest

from dev.cluster.api import ApiError
from tests.e2e.jobs import ranks, script
from tests.e2e.kube import CORE, Json, Namespace, eventually

POLICY = "/apis/policy/v1"
FOREVER = "sleep=300"


@pytest.fixture
def namespace(make_namespace: Callable[..., Namespace]) -> Namespace:
    made = make_namespace("disruption")
    made.config_map("rank", script("rank.py"))
    return made


def budget(namespace: Namespace, job: str, **limit: int | str) -> Json:
    """The status of a budget over the pods of a job, once Kubernetes has counted them."""
    path = f"{POLICY}/namespaces/{namespace.name}/poddisruptionbudgets"
    spec = {"selector": {"matchLabels": {"deepspeed-operator.dev/job-name": job}}, **limit}
    namespace.cluster.api.request("POST", path, {"metadata": {"name": job}, "spec": spec})

    def counted() -> Json | None:
        status = namespace.cluster.api.request("GET", f"{path}/{job}").get("status", {})
        return status if status.get("currentHealthy") == 2 else None

    # Kubernetes looks for a new kind of owner no more than twice a minute, and later each time.
    return eventually(counted, lambda: json.dumps(namespace.cluster.api.request("GET", f"{path}/{job}")), 240)


def evict(namespace: Namespace, pod: str) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    namespace.cluster.api.request("POST", f"{CORE}/namespaces/{namespace.name}/pods/{pod}/eviction", eviction)


@pytest.mark.parametrize("limit", [1, "50%"])
def test_a_budget_lets_one_pod_go_and_holds_the_next(namespace: Namespace, plain: str, limit: int | str) -> None:
    namespace.apply(ranks("guarded", plain, FOREVER))
    namespace.running("guarded")
    status = budget(namespace, "guarded", maxUnavailable=limit)
    assert (status["expectedPods"], status["desiredHealthy"], status["disruptionsAllowed"]) == (2, 1, 1)
    evict(namespace, "guarded-1-0")
    with pytest.raises(ApiError, match="violate the pod's disruption budget"):
        evict(namespace, "guarded-1-1")


def test_a_budget_that_allows_none_keeps_a_run_whole(namespace: Namespace, plain: str) -> None:
    namespace.apply(ranks("whole", plain, FOREVER))
    namespace.running("whole")
    assert budget(namespace, "whole", maxUnavailable=0)["disruptionsAllowed"] == 0
    with pytest.raises(ApiError, match="violate the pod's disruption budget"):
        evict(namespace, "whole-1-1")
    assert namespace.job("whole").holds("Running")
