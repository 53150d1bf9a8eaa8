"""From one run of a few configurations, the times of all others."""

import pytest

from deepspeed_operator.job.provenance import Source
from deepspeed_operator.plan.time.calibration import UnusableCalibrationError, calibrated, fabrics
from deepspeed_operator.plan.time.costs import Costs, Work
from tests.unit.plan.machine import NOTHING_STAYS, SINGLE_ROOTS, configuration, costs, run, time_of

FAST, SLOW, HALF_HIDDEN = costs(292e9), costs(2e9), costs(292e9, hides=0.5)
OTHERS = {
    **{f"stage {stage}, accumulation {steps}": configuration(stage, steps) for stage in range(4) for steps in (1, 4)},
    "stage 1, single roots": configuration(1, 4, **SINGLE_ROOTS),
    "stage 2, single roots": configuration(2, 4, **SINGLE_ROOTS),
    "stage 3, nothing stays": configuration(3, 4, **NOTHING_STAYS),
    "stage 2, larger micro batch": configuration(2, 1, micro=16),
    "stage 3, larger micro batch": configuration(3, 1, micro=16),
}


@pytest.mark.parametrize("true", [FAST, SLOW, HALF_HIDDEN], ids=["fast", "slow", "half of computing hidden"])
def test_times_that_were_not_measured_are_predicted(true: Costs) -> None:
    found = calibrated(run("fabric", true), "fabric").costs
    predicted = {name: time_of(config, found).seconds for name, config in OTHERS.items()}
    assert predicted == pytest.approx(
        {name: time_of(config, true).seconds for name, config in OTHERS.items()}, rel=0.02
    )


@pytest.mark.parametrize("true", [FAST, HALF_HIDDEN], ids=["all hidden", "half hidden"])
def test_a_gather_a_module_and_the_computing_behind_them_are_told_apart(true: Costs) -> None:
    found = calibrated(run("fabric", true), "fabric").costs
    assert found.gather == pytest.approx(true.gather, rel=0.05)
    assert found.module == pytest.approx(true.module, rel=0.05)
    assert found.hides == pytest.approx(true.hides, abs=0.02)


def test_of_one_micro_batch_at_stage_3_all_computing_counts_as_hidden() -> None:
    stage_3 = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 8}
    lines = [line for line in run("fabric", HALF_HIDDEN) if not stage_3.items() <= line.get("ds_config", {}).items()]
    assert calibrated(lines, "fabric").costs.hides == 1


def test_a_micro_batch_that_was_measured_alone_counts_by_its_samples() -> None:
    lines = [line for line in run("fabric", FAST) if line.get("micro") in (None, 4)]
    found = calibrated(lines, "fabric").costs
    assert found.launch == 0
    assert found.sample == pytest.approx(FAST.sample + FAST.launch / 4)


def test_single_roots_that_were_not_measured_cost_what_other_reductions_do() -> None:
    rooted = {"stage": 2, **SINGLE_ROOTS}
    lines = [line for line in run("fabric", FAST) if line.get("ds_config", {}).get("zero_optimization") != rooted]
    reduction = calibrated(lines, "fabric").costs.reduction
    assert reduction[Work.ROOTED] == reduction[Work.DIVIDED]


def test_of_a_configuration_measured_in_rounds_the_medians_count() -> None:
    lines = run("fabric", FAST)
    slow = [{**line, "step_seconds": [each * 3 for each in line.get("step_seconds", [])]} for line in lines[1:]]
    quiet = calibrated([*lines, *lines, *slow], "fabric").costs
    assert quiet.sample == pytest.approx(FAST.sample)
    assert quiet.module == pytest.approx(FAST.module, rel=0.1)


def test_a_model_of_which_stage_3_gathers_nothing_is_calibrated_too() -> None:
    lines = run("fabric", FAST)
    small = {"hidden_size": 8, "intermediate_size": 16, "vocab_size": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    for line in lines[1:]:
        line["model_config"] = {**line["model_config"], **small, **heads}
    assert calibrated(lines, "fabric").costs.sample == pytest.approx(FAST.sample)


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
