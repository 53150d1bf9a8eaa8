"""Two jobs see the same happen to their pods, and one is also asked for runs that are refused: both fare the same."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from deepspeed_operator.api.status import DeepSpeedJobStatus
from deepspeed_operator.reconcile.observe.observed import Facts
from tests.unit.reconcile.simulation import Simulation, agent_says, job
from tests.unit.reconcile.test_life_of_a_job import REFUSED

OF_SPEC: Final = {"Accepted", "Ready", "Reconciling", "Stalled"}
ASKED: Final = (
    {"runId": "b", "dsConfig": REFUSED},
    {"runId": "c", "dsConfig": {"train_batch_size": "x"}},
    {"runId": "", "dsConfig": job().spec.ds_config},
)


def each_that_lives(simulation: Simulation, index: int, do: Callable[[], None]) -> None:
    pod = simulation.pods.get(f"pretrain-{simulation.job.status.attempt_number}-{index}")
    if pod is not None and not pod.finished:
        do()


HAPPENINGS: Final[dict[str, Callable[[Simulation, int], None]]] = {
    "moments": lambda job, _: job.wait(7),
    "a minute": lambda job, _: job.wait(60),
    "the deadline": lambda job, _: job.wait(700),
    "all run": lambda job, _: job.run_all(),
    "unready": lambda job, index: each_that_lives(job, index, lambda: job.change(index, ready=False)),
    "success": lambda job, index: each_that_lives(job, index, lambda: job.end(index)),
    "failure": lambda job, index: each_that_lives(job, index, lambda: job.end(index, 7, agent_says(index, index, 7))),
    "gated": lambda job, index: each_that_lives(job, index, lambda: job.change(index, gates=("queue",))),
    "let": lambda job, index: each_that_lives(job, index, lambda: job.change(index, gates=())),
    "gone": lambda job, _: job.remove() if any(pod.deleted_at for pod in job.pods.values()) else None,
    "suspended": lambda job, _: job.edit(suspend=True),
    "restart": lambda job, _: setattr(job, "facts", Facts(status_written_at=job.facts.status_written_at)),
}


def of_the_run(status: DeepSpeedJobStatus) -> DeepSpeedJobStatus:
    """Return what is said of the accepted run, but for counters, which are written now and then."""
    said = [
        each.model_copy(update={"observed_generation": 0}) for each in status.conditions if each.type not in OF_SPEC
    ]
    counters = {"workers": None, "goodput": None}
    return status.model_copy(update={"observed_generation": 0, **counters, "conditions": said})


def fate(simulation: Simulation) -> dict[str, Any]:
    return {name: replace(pod, resource_version="") for name, pod in simulation.pods.items()}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(HAPPENINGS)), st.integers(0, 1), st.one_of(st.none(), st.sampled_from(ASKED))),
        max_size=14,
    )
)
def test_a_refused_run_makes_no_difference_to_the_accepted_one(
    steps: list[tuple[str, int, dict[str, Any] | None]],
) -> None:
    undisturbed, disturbed = (Simulation(job(lifecycle={"startupDeadlineSeconds": 300})) for _ in range(2))
    undisturbed.settle()
    disturbed.settle()
    for name, index, asked in steps:
        if asked is not None:
            disturbed.edit(**asked)
        for simulation in (undisturbed, disturbed):
            HAPPENINGS[name](simulation, index)
            simulation.settle()
        assert fate(disturbed) == fate(undisturbed)
        assert of_the_run(disturbed.job.status) == of_the_run(undisturbed.job.status)
