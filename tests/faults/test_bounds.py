"""What the operator is set to, and what others put into the cluster, never costs it the Lease or its memory."""

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
    replica.start("--qps=0.1")
    jobs.apply()
    replica.eventually(lambda: renewals >= 10, 60)
    assert replica.get("/readyz") == (200, "leading")
