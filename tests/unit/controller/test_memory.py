"""What a process remembers of a job."""

from deepspeed_operator.api.status import DeepSpeedJobStatus, Workers
from deepspeed_operator.controller.clock import now
from deepspeed_operator.controller.memory import JobMemory
from deepspeed_operator.reconcile.observe.observed import Facts
from tests.unit.reconcile.simulation import job

WRITTEN = DeepSpeedJobStatus(warnings=1, workers=Workers(ready=8))
KEPT = DeepSpeedJobStatus(warnings=1)


def test_what_an_older_crd_dropped_of_a_status_is_known_until_that_status_changes() -> None:
    memory = JobMemory("job-1", written=WRITTEN, kept=KEPT)
    assert memory.whole(job().model_copy(update={"status": KEPT})).status == WRITTEN
    for other in (DeepSpeedJobStatus(), DeepSpeedJobStatus(warnings=2), WRITTEN):
        assert memory.whole(job().model_copy(update={"status": other})).status == other


def test_nothing_is_known_of_a_status_that_another_process_wrote() -> None:
    assert JobMemory("job-1").whole(job()).status == DeepSpeedJobStatus()


def test_a_job_counts_as_just_written_once_and_in_the_version_that_was_written() -> None:
    written = job()
    written = written.model_copy(update={"metadata": written.metadata.model_copy(update={"resource_version": "7"})})
    memory = JobMemory("job-1")
    assert not memory.just_written(written)
    memory.note_written(written)
    assert [memory.just_written(written) for _ in range(2)] == [True, False]
    memory.note_written(written)
    assert not memory.just_written(job())


def test_a_new_attempt_remembers_nothing_of_the_pods_before() -> None:
    memory = JobMemory("job-1", facts=Facts(confirmed_missing=frozenset({"pretrain-1-0"})))
    memory.begin(2)
    assert memory.facts.confirmed_missing == frozenset()
    assert memory.begun_attempt == 2


def test_what_may_not_be_deleted_is_tried_again_later_each_time() -> None:
    memory, waits = JobMemory("job-1"), list[float]()
    for _ in range(12):
        waits.append((memory.kept_children(1, "forbidden").retry_at - now()).total_seconds())
    assert 29 < waits[0] < 38
    assert waits[0] < waits[1] / 1.5 < waits[2]
    assert 3599 < waits[-1] < 4501
