"""What the operator is set to, and what others put into the cluster, never costs it the Lease or its memory."""

from pathlib import Path

from tests.faults.jobs import Jobs
from tests.faults.proxy import Answer, Forward, Proxy, Request
from tests.faults.replica import Replica


def test_a_renewal_of_the_lease_does_not_wait_for_the_turn_of_a_write(
    replica: Replica, jobs: Jobs, proxy: Proxy
) -> None:
    renewals = 0

    async def count(request: Request, forward: Forward) -> Answer:
        nonlocal renewals
        renewals += request.method == "PUT" and "/leases/" in request.path
        return await forward()

    proxy.intercept = count
    replica.start("--qps=0.01")  # less often than the Lease has to be renewed
    jobs.apply()
    replica.eventually(lambda: renewals >= 10, 60)
    assert replica.get("/readyz") == (200, "leading")


def test_jobs_that_are_large_when_parsed_are_refused_and_do_not_cost_the_operator_its_memory(
    replica: Replica, jobs: Jobs
) -> None:
    """Three bytes of JSON are 75 in the process: twelve such jobs were more than 512 MiB."""
    names = [f"large-{number}" for number in range(12)]
    for name in names:
        jobs.apply(name, nodes=1, suspend=True, template={"spec": {"x": [{}] * 450_000}})
    replica.start()
    jobs.apply()
    replica.eventually(jobs.running, 60)

    def refused() -> bool:
        return all(jobs.condition("Accepted", name).get("reason") == "InvalidSpec" for name in names)

    replica.eventually(refused, 60)
    assert "spec.template.spec.x: has 450,000 items" in jobs.condition("Accepted", names[0])["message"]
    assert peak_mib(replica) < 256


def peak_mib(replica: Replica) -> float:
    """Return the most memory that the process has had."""
    status = Path(f"/proc/{replica.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024
