"""What /metrics says of the operator's work, beside the requests that the proxy saw."""

from collections import Counter

from tests.faults.jobs import Jobs
from tests.faults.proxy import Proxy, Request
from tests.faults.replica import Replica

VERBS = {"POST": "create", "PUT": "update", "DELETE": "delete"}
KINDS = {
    "configmaps": "ConfigMap",
    "deepspeedjobs": "DeepSpeedJob",
    "endpointslices": "EndpointSlice",
    "events": "Event",
    "leases": "Lease",
    "networkpolicies": "NetworkPolicy",
    "pods": "Pod",
    "secrets": "Secret",
    "services": "Service",
}
Writes = Counter[tuple[str, str]]


def test_writes_are_counted_by_verb_and_kind(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    replica.start()
    jobs.apply(nodes=3)
    replica.eventually(jobs.running, 20)
    jobs.change(suspend=True)
    replica.eventually(lambda: jobs.condition("Suspended").get("status") == "True", 20)

    def agree() -> bool:
        """The Lease is renewed while one looks: what is said lies between what was seen before and after."""
        before, said, after = seen(proxy), counted(replica), seen(proxy)
        return before <= said <= after

    replica.eventually(agree, 5)
    writes = counted(replica)
    assert writes["create", "Pod"] == 3 + 1, "the gang, and the pod that was tried before"
    assert writes["delete", "Pod"] == 3
    assert writes["update", "DeepSpeedJob"] >= 2
    assert {kind for _, kind in writes} == set(KINDS.values())


def test_looks_at_jobs_are_timed_and_those_that_wait_are_counted(replica: Replica, jobs: Jobs) -> None:
    replica.start()
    assert replica.metric("deepspeed_operator_reconcile_seconds_count") == 0
    jobs.apply()
    replica.eventually(jobs.running, 20)
    assert replica.metric("deepspeed_operator_reconcile_seconds_count") > 0
    assert replica.metric("deepspeed_operator_reconcile_seconds_sum") > 0
    assert "\ndeepspeed_operator_queue_depth " in replica.get("/metrics")[1]


def seen(proxy: Proxy) -> Writes:
    return Counter(described(request) for request in proxy.requests if request.method in VERBS)


def described(request: Request) -> tuple[str, str]:
    plural = next(part for part in request.path.split("/") if part in KINDS)
    return VERBS[request.method], KINDS[plural]


def counted(replica: Replica) -> Writes:
    """By the operator itself, dry runs and writes that were refused among them."""
    writes: Writes = Counter()
    for line in replica.get("/metrics")[1].splitlines():
        if line.startswith("deepspeed_operator_api_writes_total{"):
            labels, _, value = line.partition("{")[2].partition("} ")
            label = dict(pair.split("=") for pair in labels.replace('"', "").split(","))
            writes[label["verb"], label["kind"]] = int(float(value))
    return writes
