"""Two jobs that are applied together, of which the cluster has room for one."""

from collections.abc import Callable

import pytest

from tests.e2e.jobs import job, script
from tests.e2e.kube import Namespace

# Of a kind that no test beside these takes.
ALL = {"resources": {"limits": {"amd.com/gpu": 8}}}
RUN = {"script": "rank.py", "files": {"configMap": "rank"}}


@pytest.fixture
def namespace(make_namespace: Callable[..., Namespace]) -> Namespace:
    made = make_namespace("half-gangs")
    made.config_map("rank", script("rank.py"))
    return made


def test_two_jobs_that_each_hold_what_the_other_waits_for_both_end_well(namespace: Namespace, plain: str) -> None:
    """Of two nodes each job needs both. Whether they come to hold one each is the scheduler's choice: it is forced."""
    on_one = {"nodeSelector": {"kubernetes.io/hostname": "node0"}}
    brief = {**RUN, "args": ["sleep=2"]}
    blocker = job("blocker", plain, training={**RUN, "args": ["sleep=300"]}, trainer=ALL, nodes=1, pod=on_one)
    namespace.apply(blocker)
    namespace.running("blocker")
    namespace.apply(job("older", plain, training=brief, trainer=ALL))
    held = namespace.wait("older", lambda job: job.says("1 of 2 pods placed, holding 8 amd.com/gpu"), 30)
    assert held.reason("Reconciling") == "Unschedulable"
    namespace.apply(job("younger", plain, training=brief, trainer=ALL))
    namespace.delete("blocker")
    namespace.completed("older", 120)
    namespace.completed("younger", 120)


def test_of_many_jobs_that_are_applied_together_none_waits_for_ever(namespace: Namespace, plain: str) -> None:
    brief = {**RUN, "args": ["sleep=1"]}
    names = ["a", "b", "c"]
    namespace.apply(*(job(name, plain, training=brief, trainer=ALL) for name in names))
    for name in names:
        namespace.completed(name, 240)


def test_a_gang_gives_back_what_it_may_hold_only_for_so_long(namespace: Namespace, plain: str) -> None:
    on_one = {"nodeSelector": {"kubernetes.io/hostname": "node0"}}
    long = {**RUN, "args": ["sleep=300"]}
    namespace.apply(job("blocker", plain, training=long, trainer=ALL, nodes=1, pod=on_one))
    namespace.running("blocker")
    limits = {"partialGangDeadlineSeconds": 10}
    namespace.apply(job("partial", plain, training={**RUN, "args": ["sleep=1"]}, trainer=ALL, lifecycle=limits))
    waiting = namespace.wait("partial", lambda job: job.reason("Reconciling") == "GangGivenBack", 60)
    assert waiting.says("longer than spec.lifecycle.partialGangDeadlineSeconds (10 s)")
    namespace.gone("partial")
    namespace.delete("blocker")
    namespace.completed("partial", 120)
