"""What a process remembers of a job."""

from deepspeed_operator.api.status import Batch, DeepSpeedJobStatus
from deepspeed_operator.controller.memory import JobMemory
from tests.unit.reconcile.simulation import job

WRITTEN = DeepSpeedJobStatus(attempt=1, batch=Batch(train=8))
KEPT = DeepSpeedJobStatus(attempt=1)


def test_what_an_older_crd_dropped_of_a_status_is_known_until_that_status_changes() -> None:
    memory = JobMemory("job-1", written=WRITTEN, kept=KEPT)
    assert memory.whole(job().model_copy(update={"status": KEPT})).status == WRITTEN
    for other in (DeepSpeedJobStatus(), DeepSpeedJobStatus(attempt=2), WRITTEN):
        assert memory.whole(job().model_copy(update={"status": other})).status == other


def test_nothing_is_known_of_a_status_that_another_process_wrote() -> None:
    assert JobMemory("job-1").whole(job()).status == DeepSpeedJobStatus()
