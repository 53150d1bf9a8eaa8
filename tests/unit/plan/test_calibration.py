"""From one run of three configurations, the times of all others."""

import pytest

from deepspeed_operator.plan.calibration import UnusableCalibrationError, calibrated, fabrics
from deepspeed_operator.plan.costs import Costs
from deepspeed_operator.plan.model import Source
from tests.unit.plan.machine import NOTHING_STAYS, configuration, costs, run, time_of

FAST, SLOW = costs(292e9), costs(2e9)
ROOTS = {"use_multi_rank_bucket_allreduce": False}
OTHERS = {
    **{f"stage {stage}, accumulation {steps}": configuration(stage, steps) for stage in range(4) for steps in (1, 4)},
    "stage 1, single roots": configuration(1, 4, **ROOTS),
    "stage 2, single roots": configuration(2, 4, **ROOTS),
    "stage 3, nothing stays": configuration(3, 4, **NOTHING_STAYS),
    "stage 2, larger micro batch": configuration(2, 1, micro=16),
}


@pytest.mark.parametrize("true", [FAST, SLOW], ids=["fast", "slow"])
def test_times_that_were_not_measured_are_predicted(true: Costs) -> None:
    found = calibrated(run("fabric", true), "fabric").costs
    predicted = {name: time_of(config, found).seconds for name, config in OTHERS.items()}
    assert predicted == pytest.approx(
        {name: time_of(config, true).seconds for name, config in OTHERS.items()}, rel=0.02
    )


def test_a_gather_and_a_module_are_told_apart() -> None:
    found = calibrated(run("fabric", FAST), "fabric").costs
    assert found.gather == pytest.approx(FAST.gather, rel=0.05)
    assert found.module == pytest.approx(FAST.module, rel=0.05)


def test_only_the_fabric_that_is_asked_for_counts() -> None:
    lines = [*run("nvlink", FAST), *run("tcp", SLOW)]
    assert fabrics(lines) == ("nvlink", "tcp")
    config = configuration(2, 4)
    slow, fast = (time_of(config, calibrated(lines, name).costs).communication for name in ("tcp", "nvlink"))
    assert slow > 50 * fast


def test_what_was_measured_says_so() -> None:
    assert {fact.source for fact in calibrated(run("tcp", SLOW), "tcp").costs.facts} == {Source.MEASURED}


@pytest.mark.parametrize("missing", range(4), ids=["sweep", "stage 0", "stage 2", "stage 3"])
def test_a_run_that_lacks_something_is_refused(missing: int) -> None:
    lines = run("tcp", SLOW)[:4]
    with pytest.raises(UnusableCalibrationError):
        calibrated([line for index, line in enumerate(lines) if index != missing], "tcp")
