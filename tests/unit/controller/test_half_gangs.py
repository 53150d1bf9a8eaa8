"""The operator knows which gangs hold nodes and wait for more."""

from dataclasses import replace
from datetime import timedelta

from deepspeed_operator.controller.cache import JobCache, PodCache
from deepspeed_operator.controller.half_gangs import HalfGangFinder
from tests.unit.controller.test_cache import KEY, NOW, job, pod


def test_a_gang_of_which_a_part_is_placed_is_found_and_only_of_a_job_that_is_there() -> None:
    jobs, pods = JobCache(lambda _: None), PodCache(lambda _: None)
    pods.put(replace(pod(1, index=0, uid="pod-0"), node="node0"))
    waiting = {"unschedulable": "Insufficient cpu", "unschedulable_since": NOW - timedelta(seconds=1)}
    pods.put(replace(pod(2, index=1, uid="pod-1"), **waiting))
    assert HalfGangFinder(jobs, pods).find().found == ()
    created = job(3)
    jobs.put(
        created.model_copy(update={"metadata": created.metadata.model_copy(update={"creation_timestamp": "then"})}), 1
    )
    (found,) = HalfGangFinder(jobs, pods).find().found
    assert ((found.namespace, found.job), found.created) == (KEY, "then")
    assert (found.placed, found.size, found.waits_for) == (1, 2, {"cpu"})
