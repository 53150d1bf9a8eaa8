"""The API server's clock is an hour off the operator's, the nodes' an hour off the API server's."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from deepspeed_operator.reconcile.failure.attempt_end import SETTLE
from tests.faults.jobs import Jobs
from tests.faults.proxy import Answer, Forward, Interceptor, Proxy, Request
from tests.faults.replica import Replica


def sets_date(ahead: timedelta) -> Interceptor:
    async def dated(request: Request, forward: Forward) -> Answer:
        answer = await forward()
        if request.watches:
            return answer
        return replace(answer, headers={**answer.headers, "Date": format_datetime(_now() + ahead, usegmt=True)})

    return dated


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@pytest.mark.parametrize("hours", [1, -1])
def test_clocks_an_hour_apart(replica: Replica, jobs: Jobs, proxy: Proxy, hours: int) -> None:
    ahead = timedelta(hours=hours)
    proxy.intercept = sets_date(ahead)
    replica.start()
    jobs.apply()
    replica.eventually(jobs.running, 20)
    began = datetime.fromisoformat(jobs.status()["run"]["startTime"])
    assert abs(began - _now() - ahead) < timedelta(minutes=1)
    ended = {"exitCode": 7, "reason": "Error", "finishedAt": _now().isoformat().replace("+00:00", "Z")}
    trainer = {"name": "trainer", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    told = time.monotonic()
    jobs.set_pod_status("pretrain-1-1", {"containerStatuses": [{**trainer, "state": {"terminated": ended}}]})
    replica.eventually(lambda: jobs.condition("Failed").get("status") == "True", 30)
    assert time.monotonic() - told >= SETTLE.total_seconds() - 1
    assert jobs.status()["failure"]["pod"] == "pretrain-1-1"
