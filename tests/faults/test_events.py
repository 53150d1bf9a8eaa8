"""What happens to a job is told each time that it happens, also by an API server in trouble."""

from tests.faults.jobs import Jobs
from tests.faults.proxy import Answer, Forward, Proxy, Request, refusal
from tests.faults.replica import Replica

# More than the client itself tries a request.
REFUSED = 8


def suspended(jobs: Jobs) -> bool:
    return jobs.condition("Suspended").get("status") == "True"


def told(jobs: Jobs, reason: str) -> int:
    events = jobs.api.request("GET", jobs.path("events"))["items"]
    return sum(event["reason"] == reason and event["involvedObject"]["name"] == "pretrain" for event in events)


def test_what_happens_again_is_told_again(replica: Replica, jobs: Jobs) -> None:
    replica.start()
    jobs.apply(suspend=True)
    for number in (1, 2):
        replica.eventually(lambda: suspended(jobs), 20)
        replica.eventually(lambda number=number: told(jobs, "Suspended") == number, 10)
        jobs.change(suspend=False)
        replica.eventually(jobs.running, 30)
        jobs.change(suspend=True)
    replica.eventually(lambda: told(jobs, "Running") == 2, 10)


def test_an_event_that_is_not_taken_is_told_later_and_keeps_no_other_from_being_told(
    replica: Replica, jobs: Jobs, proxy: Proxy
) -> None:
    refused: list[str] = []

    async def in_trouble(request: Request, forward: Forward) -> Answer:
        if request.creates("events") and len(refused) < REFUSED:
            refused.append(request.path)
            return refusal(503, "ServiceUnavailable")
        return await forward()

    proxy.intercept = in_trouble
    replica.start()
    jobs.apply()
    replica.eventually(jobs.running, 30)
    replica.eventually(lambda: told(jobs, "Starting") == told(jobs, "Running") == 1, 60)


def test_an_event_is_told_though_the_answer_to_its_status_is_lost(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    lost: list[str] = []

    async def lose_the_first(request: Request, forward: Forward) -> Answer:
        answer = await forward()
        if request.path.endswith("/pretrain/status") and not lost:
            lost.append(request.path)
            return refusal(503, "ServiceUnavailable")
        return answer

    proxy.intercept = lose_the_first
    replica.start()
    jobs.apply()
    replica.eventually(jobs.running, 30)
    replica.eventually(lambda: told(jobs, "Starting") == 1, 10)
