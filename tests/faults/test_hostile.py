"""What one tenant writes neither ends the operator nor keeps another's job from running."""

import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.cluster.api import ApiError
from dev.cluster.cluster import Cluster
from tests.faults.hostile import KINDS, Hostile
from tests.faults.jobs import Jobs
from tests.faults.proxy import Answer, Forward, Proxy, Request, honest
from tests.faults.replica import Replica

# Many objects make the bench long, and tell no more than few.
FEW = tuple(kind for kind in KINDS if len(kind.make()) < 10)


@pytest.fixture
def tenant(simulated: Cluster) -> Iterator[Jobs]:
    """Another tenant's namespace, with a quota."""
    name = f"hostile-{secrets.token_hex(3)}"
    simulated.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    quota = {"metadata": {"name": "tenant"}, "spec": {"hard": {"pods": "20"}}}
    simulated.api.request("POST", f"/api/v1/namespaces/{name}/resourcequotas", quota)
    yield Jobs(simulated.api, name)
    simulated.api.request("DELETE", f"/api/v1/namespaces/{name}")


def post(tenant: Jobs, kind: Hostile) -> None:
    for body in kind.make():
        try:
            if body["kind"] == "ConfigMap":
                tenant.create("configmaps", body)
            else:
                tenant.create_job(body)
        except ApiError as error:
            if error.status not in {400, 413, 422}:  # the CRD's own bounds
                raise


def test_hostile_jobs_stop_nobody(replica: Replica, jobs: Jobs, tenant: Jobs) -> None:
    replica.start(f"--watch-namespaces={jobs.namespace},{tenant.namespace}")
    for kind in FEW:
        post(tenant, kind)
    jobs.apply()
    replica.eventually(jobs.running, 60)
    assert replica.alive
    assert jobs.lease_holder() == "one"
    assert replica.stop() == 0
    replica.start(f"--watch-namespaces={jobs.namespace},{tenant.namespace}")
    jobs.apply("after-a-restart")
    replica.eventually(lambda: jobs.running("after-a-restart"), 60)
    assert replica.alive


def test_a_job_that_the_process_ends_on_is_left_alone(replica: Replica, jobs: Jobs, tmp_path: Path) -> None:
    """The marker is as a process leaves it that was killed while it worked on the job."""
    directory = tmp_path / "state"
    directory.mkdir()
    jobs.apply("deadly")
    jobs.apply("good")
    (directory / "at-work").write_text(jobs.read("deadly")["metadata"]["uid"])
    replica.start(f"--state-directory={directory}")
    replica.eventually(lambda: jobs.condition("Ready", "deadly").get("reason") == "Quarantined", 10)
    assert "ended while it worked on this job" in jobs.condition("Ready", "deadly")["message"]
    replica.eventually(lambda: jobs.running("good"), 20)
    assert not jobs.running("deadly")
    replica.eventually(lambda: jobs.running("deadly"), 30)


def test_a_kill_between_jobs_sets_nobody_aside(replica: Replica, jobs: Jobs, proxy: Proxy, tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir()

    async def kill(request: Request, forward: Forward) -> Answer:
        if request.creates("pods"):
            replica.send(signal.SIGKILL)
        return await forward()

    replica.start(f"--state-directory={directory}")
    proxy.intercept = kill
    jobs.apply()
    assert replica.wait() == -signal.SIGKILL
    proxy.intercept = honest
    replica.start(f"--state-directory={directory}")
    replica.eventually(jobs.running, 20)
    assert not (directory / "set-aside.json").exists()
