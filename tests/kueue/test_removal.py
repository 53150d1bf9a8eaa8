"""Kueue is taken out of the cluster, and put into it again, while a job runs that it had admitted."""

from dev.cluster.kueue import Kueue
from tests.faults.jobs import Jobs
from tests.faults.replica import Replica
from tests.kueue.page import see
from tests.kueue.queues import Queue


def test_a_job_runs_on_when_kueue_is_removed(kueue: Kueue, jobs: Jobs, replica: Replica) -> None:
    queue = Queue(jobs, pods=2)
    queue.make()
    queue.submit("first")
    replica.eventually(lambda: jobs.running("first"), 60)
    kueue.remove()
    replica.eventually(lambda: "does not serve kueue.x-k8s.io" in replica.log, 60)
    jobs.delete_pod("first-1-1")
    replica.eventually(lambda: "first-1-1-r1" in jobs.pods_of("first") and jobs.running("first"), 60)
    assert jobs.status("first")["attempt"]["number"] == 1
    kueue.install()
    queue.make()
    replica.eventually(lambda: jobs.runs_attempt(2, "first"), 120)
    see(queue, "first", "Kueue was removed, and put back: its turn again")
    queue.remove()
