"""The caches: newer wins, deletions count once, and a list replaces what was known."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import ENV_INDEX, LABEL_ATTEMPT, LABEL_INDEX, LABEL_JOB_NAME, LABEL_JOB_UID
from deepspeed_operator.api.status import DeepSpeedJobStatus, State
from deepspeed_operator.controller.cache import KEPT_PODS, REMEMBERED, Ends, JobCache, PodCache
from deepspeed_operator.controller.queue import Key
from deepspeed_operator.job.template import pod_template
from deepspeed_operator.reconcile.observe.pods import PodView, pod_view

KEY: Key = ("ml", "pretrain")
NOW = datetime(2026, 11, 28, tzinfo=UTC)


def job(version: int, uid: str = "job-1", name: str = "pretrain", namespace: str = "ml") -> DeepSpeedJob:
    metadata = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(version)}
    return DeepSpeedJob.model_validate({"metadata": metadata, "spec": {"training": {"script": "train.py"}}})


def pod(
    version: int,
    index: int = 0,
    uid: str = "pod-1",
    phase: str = "Pending",
    attempt: int = 1,
    *,
    now: datetime = NOW,
    job_name: str = KEY[1],
) -> PodView:
    labels = {LABEL_JOB_NAME: job_name, LABEL_JOB_UID: "job-1", LABEL_ATTEMPT: str(attempt), LABEL_INDEX: str(index)}
    return pod_view(
        {
            "metadata": {
                "namespace": "ml",
                "name": f"{job_name}-{attempt}-{index}",
                "uid": uid,
                "resourceVersion": str(version),
                "labels": labels,
            },
            "spec": {"containers": [{"name": "trainer", "env": [{"name": ENV_INDEX, "value": str(index)}]}]},
            "status": {"phase": phase},
        },
        now,
    )


def test_an_older_version_of_a_job_does_not_undo_the_answer_to_our_write() -> None:
    told: list[Key] = []
    cache = JobCache(told.append)
    cache.put(job(9), 0)
    cache.put(job(10), 0)
    cache.put(job(9), 0)
    cache.put(job(10), 0)
    known = cache.get(KEY)
    assert known is not None
    assert known.version == 10
    assert told == [KEY, KEY]


def metadata(version: int, **more: str) -> dict[str, Any]:
    said = {"name": "pretrain", "namespace": "ml", "uid": "job-1", "resourceVersion": str(version)}
    return {"metadata": {**said, **more}}


def in_state(version: int, state: State | None, name: str = "pretrain") -> DeepSpeedJob:
    return job(version, name=name).model_copy(update={"status": DeepSpeedJobStatus(state=state)})


def test_what_the_watch_tells_of_a_job_makes_what_was_read_before_old() -> None:
    told: list[Key] = []
    cache = JobCache(told.append)
    cache.tell(metadata(5))
    assert cache.whole(KEY) is None
    cache.put(job(5), 0)
    assert told == [KEY], "what was read is what was told"
    assert cache.whole(KEY) == job(5)
    cache.tell(metadata(5))
    cache.tell(metadata(6))
    assert told == [KEY, KEY]
    assert cache.whole(KEY) is None
    cache.tell(metadata(7, deletionTimestamp="2026-11-28T00:00:00Z"))
    known = cache.get(KEY)
    assert known is not None
    assert known.leaving


@pytest.mark.parametrize("state", [State.INVALID, State.SUSPENDED, State.COMPLETE, State.FAILED])
def test_of_a_job_at_rest_a_record_is_kept_and_nothing_else(state: State) -> None:
    cache = JobCache(lambda _: None)
    cache.put(in_state(5, State.RUNNING), 100)
    assert cache.whole(KEY) is not None
    cache.put(in_state(6, state), 100)
    assert cache.whole(KEY) is None
    known = cache.get(KEY)
    assert known is not None
    assert (known.version, known.state) == (6, state)


def test_between_looks_nothing_is_kept_that_was_computed_of_a_job() -> None:
    cache, looked_at = JobCache(lambda _: None), in_state(5, State.RUNNING)
    cache.put(looked_at, 100)
    parsed = pod_template(looked_at.spec)
    assert [*looked_at.spec.memo.values()] == [parsed]
    cache.forget_computed(KEY)
    cache.forget_computed(("ml", "unknown"))
    kept = cache.whole(KEY)
    assert kept is not None
    assert kept.spec.memo == {}


def test_of_the_jobs_at_work_those_are_kept_whole_that_were_looked_at_last_and_fit() -> None:
    cache = JobCache(lambda _: None, capacity=1000)
    for number in range(4):
        cache.put(in_state(number, State.RUNNING, f"job-{number}"), 300)
        assert cache.whole(("ml", "job-0")) is not None
    assert [number for number in range(4) if cache.whole(("ml", f"job-{number}"))] == [0, 2, 3]
    cache.put(in_state(9, State.RUNNING, "large"), 2000)
    assert [number for number in range(4) if cache.whole(("ml", f"job-{number}"))] == []
    assert len(cache) == 5


def test_versions_are_numbers() -> None:
    cache = JobCache(lambda _: None)
    cache.put(job(999), 0)
    cache.put(job(1000), 0)
    known = cache.get(KEY)
    assert known is not None
    assert known.version == 1000


def test_the_late_deletion_of_an_earlier_job_does_not_remove_its_successor() -> None:
    cache = JobCache(lambda _: None)
    cache.put(job(20, uid="job-2"), 0)
    cache.remove(KEY, "job-1")
    assert cache.get(KEY) is not None


def test_a_list_removes_jobs_that_are_gone_and_keeps_those_that_came_after_it() -> None:
    told: list[Key] = []
    cache = JobCache(told.append)
    for each in (job(5, name="gone"), job(6, name="stays"), job(30, name="newer"), job(5, namespace="other")):
        cache.put(each, 0)
    told.clear()
    cache.retain("ml", {("ml", "stays"): "job-1"}, 20)
    assert told == [("ml", "gone")]
    assert sorted(each.version for each in cache.values()) == [5, 6, 30]


def test_a_pod_of_which_only_the_version_changes_is_no_news() -> None:
    told: list[Key] = []
    cache = PodCache(told.append)
    cache.put(pod(1))
    cache.put(pod(2))
    assert told == [KEY]
    assert [each.resource_version for each in cache.of_job(KEY)] == ["2"]
    cache.put(pod(3, phase="Running"))
    assert told == [KEY, KEY]


def test_a_pod_keeps_when_it_was_first_seen_to_have_come_so_far() -> None:
    cache = PodCache(lambda _: None)
    cache.put(pod(1))
    for version, phase, later in ((2, "Running", 5), (3, "Running", 6), (4, "Failed", 7), (5, "Failed", 9)):
        cache.put(pod(version, phase=phase, now=NOW + timedelta(seconds=later)))
        (seen,) = cache.of_job(KEY)
        assert seen.since == NOW + timedelta(seconds=5 if phase == "Running" else 7)
    cache.put(pod(6, uid="pod-2", phase="Failed", now=NOW + timedelta(seconds=11)))
    assert [each.since for each in cache.of_job(KEY)] == [NOW + timedelta(seconds=11)]


def test_pods_come_by_attempt_and_index() -> None:
    cache = PodCache(lambda _: None)
    for each in (pod(1, 0, "b", attempt=2), pod(2, 10, "k"), pod(3, 9, "j")):
        cache.put(each)
    assert [each.name for each in cache.of_job(KEY)] == ["pretrain-1-9", "pretrain-1-10", "pretrain-2-0"]


def test_a_list_removes_pods_that_are_gone() -> None:
    told: list[Key] = []
    cache = PodCache(told.append)
    cache.put(pod(1, 0, "gone"))
    cache.put(pod(2, 1, "stays"))
    cache.put(pod(30, 2, "newer"))
    told.clear()
    cache.retain(None, {"stays"}, 20)
    assert told == [KEY]
    assert [(each.uid, each.gone) for each in cache.of_job(KEY)] == [("gone", True), ("stays", False), ("newer", False)]


def test_a_deletion_of_an_earlier_pod_of_the_name_is_ignored() -> None:
    cache = PodCache(lambda _: None)
    cache.put(pod(9, uid="new"))
    cache.remove(KEY, "pretrain-1-0", "old")
    assert [each.uid for each in cache.of_job(KEY)] == ["new"]


def test_an_answer_that_arrives_after_the_pods_end_does_not_bring_it_back() -> None:
    told: list[Key] = []
    cache = PodCache(told.append)
    cache.put(pod(5))
    cache.ended(pod(7))
    told.clear()
    cache.put(pod(6))
    assert [each.gone for each in cache.of_job(KEY)] == [True]
    assert told == []
    cache.put(pod(8, uid="pod-2"))
    assert [each.uid for each in cache.of_job(KEY)] == ["pod-2"]


def test_how_a_pod_was_last_seen_is_still_known_when_it_is_gone() -> None:
    cache = PodCache(lambda _: None)
    cache.put(pod(5, 0, "a", "Running"))
    cache.put(pod(5, 1, "b", "Running"))
    cache.put(pod(5, 2, "c", "Succeeded"))
    cache.ended(pod(7, 0, "a", "Succeeded"))  # what its end was is told with its deletion
    cache.ended(pod(7, 1, "b", "Failed"))
    cache.retain(None, set(), 9)
    seen = [(each.index, each.succeeded, each.gone) for each in cache.of_job(KEY)]
    assert seen == [(0, True, True), (1, False, True), (2, True, True)]
    assert all(each.deleted_at is not None and each.released for each in cache.of_job(KEY))
    cache.put(pod(10, 0, "another"))
    assert [(each.uid, each.gone) for each in cache.of_job(KEY)] == [("another", False), ("b", True), ("c", True)]
    for index in range(KEPT_PODS + 1):
        cache.put(pod(11, index, f"n{index}", "Succeeded", attempt=2))
    cache.retain(None, set(), 12)
    assert len(cache.of_job(KEY)) == KEPT_PODS


def test_pods_that_have_gone_are_looked_up_by_their_job_and_the_oldest_job_loses_them_first() -> None:
    class Name(str):
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str(self) == other

    cache = PodCache(lambda _: None)
    cache.put(pod(5, 0, "old", "Succeeded", job_name="earlier"))
    cache.retain(None, set(), 6)
    for index in range(KEPT_PODS):
        cache.put(pod(7, index, f"n{index}", "Succeeded"))
    cache.retain(None, set(), 8)
    assert cache.of_job(("ml", "earlier")) == ()
    assert cache.of_job((Name("ml"), Name("another"))) == ()
    assert Name.compared < KEPT_PODS / 100
    assert len(cache.of_job(KEY)) == KEPT_PODS


def test_a_pod_that_only_lost_its_label_may_be_read_again() -> None:
    """The watch tells of its end with the very version that it has from then on."""
    cache = PodCache(lambda _: None)
    cache.ended(pod(7))
    cache.put(pod(7))
    assert [each.uid for each in cache.of_job(KEY)] == ["pod-1"]


def test_the_answer_to_a_write_that_arrives_after_the_jobs_end_does_not_bring_it_back() -> None:
    cache = JobCache(lambda _: None)
    cache.put(job(5), 0)
    cache.ended(KEY, "job-1", 7)
    cache.put(job(6), 0)
    assert cache.get(KEY) is None
    cache.put(job(8, uid="job-2"), 0)
    assert cache.get(KEY) is not None


def test_ends_are_not_remembered_for_ever() -> None:
    ends = Ends()
    for number in range(REMEMBERED + 1):
        ends.add(f"pod-{number}", 7)
    assert ends.after("pod-1", 6)
    assert not ends.after("pod-0", 6)
