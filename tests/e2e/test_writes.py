"""How little the operator writes: counted by the API server's audit log."""

import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.e2e.crowd import RUNNING, Crowd
from tests.e2e.installation import ENDPOINT_CONTROLLERS, Operator, now
from tests.e2e.jobs import ranks, script
from tests.e2e.kube import Namespace, eventually

IDLE_SECONDS = 60


@pytest.mark.parametrize("nodes", [2, 8])
def test_writes_from_apply_to_running(
    make_namespace: Callable[..., Namespace], operator: Operator, crowd: Crowd, plain: str, nodes: int
) -> None:
    namespace = make_namespace("budget")
    namespace.config_map("rank", script("rank.py"))
    since = now()
    namespace.apply(ranks("budget", plain, "sleep=600", nodes=nodes))
    namespace.running("budget", 90)
    namespace.told("budget", "Running")
    operator.quiet(namespace.name)
    writes = operator.writes(since, namespace.name, controllers=True)
    listed = [f"{event.user.rpartition(':')[2]} {event.verb} {event.resource} {event.name}" for event in writes]
    of_each = Counter(write.resource for write in writes)
    assert 1 <= of_each.pop("events") <= 3, listed
    # What they cannot be fewer than, or not all of them were counted.
    once = ("services", "configmaps", "secrets", "endpointslices")
    least = {**dict.fromkeys(once, 1), "pods": nodes, "deepspeedjobs/status": 2}
    assert of_each.pop("networkpolicies") == 1, "the namespace's first job makes its policy"
    assert of_each.keys() == least.keys(), listed
    assert all(of_each[resource] >= number for resource, number in least.items()), listed
    assert of_each.total() <= nodes + 7, listed
    namespace.delete("budget", "--wait=false")


def test_writes_of_the_endpoint_controllers_would_be_counted(
    make_namespace: Callable[..., Namespace], operator: Operator
) -> None:
    namespace = make_namespace("endpoints")
    since = now()
    selecting = {"selector": {"app": "none"}, "ports": [{"port": 80}]}
    addresses = [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]
    namespace.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "selecting"}, "spec": selecting},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "bare"}, "spec": {"ports": [{"port": 80}]}},
        {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "bare"}, "subsets": addresses},
    )

    def writers() -> set[str]:
        return {event.user.rpartition(":")[2] for event in operator.writes(since, namespace.name, controllers=True)}

    eventually(lambda: writers() == set(ENDPOINT_CONTROLLERS), lambda: f"only {writers()} wrote", 20)


def test_idle_means_no_writes(crowd: Crowd, operator: Operator) -> None:
    """The other tests may have begun jobs meanwhile: those are not the crowd's."""
    time.sleep(max(0, crowd.settled_at + IDLE_SECONDS - time.monotonic()))
    assert operator.writes(crowd.settled, crowd.namespace.name) == []
    assert len([job for job in crowd.namespace.jobs() if job.holds("Running")]) == RUNNING


@pytest.mark.disrupts
def test_a_new_operator_finds_nothing_to_do_in_any_state(crowd: Crowd, operator: Operator) -> None:
    states = {job.status.get("state") for job in crowd.namespace.jobs()}
    assert {"Complete", "Failed", "Running", "Suspended", "Invalid"} <= states
    operator.scale(0)
    since = now()
    operator.scale(1)
    time.sleep(15)
    assert operator.writes(since, crowd.namespace.name) == []
