"""Times and advice beside what was measured: a Llama of 1.345 B parameters in bf16, micro batch 4, on two H100s."""

from typing import Any

import pytest

from deepspeed_operator.plan.advice import Alternative, Circumstances, Plan, advise, plan_of
from deepspeed_operator.plan.model import declared, from_hugging_face
from deepspeed_operator.plan.steptime import Speeds

GIB = 2**30
LLAMA = from_hugging_face(
    {
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 5504,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "vocab_size": 32000,
    }
)
# Calibrated with one run, stage 0 without accumulation: 6.76 samples/s.
SOCKETS = Speeds(network=2.46e9, micro_step=0.09)
NVLINK = Speeds(network=292e9, micro_step=0.09)
# (stage, accumulation) → samples/s over TCP sockets.
MEASURED = {(2, 4): 6.85, (3, 4): 7.04, (0, 4): 21.9}


def configuration(stage: int, accumulation: int, **zero: Any) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": accumulation,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW"},
        "zero_optimization": {"stage": stage, **zero},
    }


def around(speeds: Speeds = SOCKETS, capacity: int | None = None) -> Circumstances:
    return Circumstances(LLAMA, 2, 2, "0.19.8", speeds, capacity)


def planned(stage: int, accumulation: int, **zero: Any) -> Plan:
    return plan_of(configuration(stage, accumulation, **zero), 4, accumulation, around())


def advised(speeds: Speeds = SOCKETS, capacity: int | None = None, **zero: Any) -> list[Alternative]:
    config, circumstances = configuration(2, 4, **zero), around(speeds, capacity)
    return advise(config, plan_of(config, 4, 4, circumstances), circumstances)


def same_batch(alternatives: list[Alternative]) -> list[Alternative]:
    return [each for each in alternatives if not each.change.caveat]


def test_stage_3_gathers_what_nccl_was_seen_to_gather() -> None:
    payload = planned(3, 4).traffic.payload()
    assert payload["all-gather"] / (2 * LLAMA.parameters) == pytest.approx(5.03, abs=0.01)


@pytest.mark.parametrize(("case", "measured"), MEASURED.items())
def test_predicted_rates_are_near_those_that_were_not_calibrated_with(case: tuple[int, int], measured: float) -> None:
    assert planned(*case).samples_per_second == pytest.approx(measured, rel=0.15)


def test_the_usual_recipe_gains_nothing_on_a_slow_network_and_stage_0_three_times_as_much() -> None:
    best = same_batch(advised())[0]
    assert dict(best.change.values) == {"zero_optimization.stage": 0}
    assert best.gain == pytest.approx(21.9 / 6.85, rel=0.15)


def test_reduces_to_single_ranks_gain_a_quarter_of_the_step() -> None:
    now, single = planned(2, 4).time, planned(2, 4, use_multi_rank_bucket_allreduce=False).time
    assert now is not None
    assert single is not None
    assert 1 - single.seconds / now.seconds == pytest.approx(0.25, abs=0.05)


def test_a_fast_network_leaves_nothing_to_gain_at_the_same_batch() -> None:
    assert same_batch(advised(NVLINK)) == []


def test_advice_that_changes_the_global_batch_says_so_and_comes_last() -> None:
    caveats = [each.change.caveat for each in advised()]
    assert caveats == sorted(caveats)
    assert caveats[-1] == "the global batch grows from 32 to 128 samples"


def test_what_does_not_fit_is_not_advised() -> None:
    capacity = planned(1, 4).memory.needed + GIB
    assert planned(0, 4).memory.needed > capacity
    assert all(each.plan.setup.stage > 0 for each in advised(capacity=capacity))
    assert advised(capacity=capacity)


@pytest.mark.parametrize("speeds", [Speeds(network=1e9), Speeds(micro_step=0.1), Speeds(1e9, None, 0.1)])
def test_without_the_speed_that_matters_there_is_no_time_and_no_advice(speeds: Speeds) -> None:
    assert advised(speeds) == []


def test_a_lower_bound_is_no_advice() -> None:
    config, circumstances = configuration(2, 4), Circumstances(declared(10**9), 2, 2, "0.18.9", SOCKETS)
    now = plan_of(config, 4, 4, circumstances)
    assert now.time is not None
    assert now.time.unproven
    assert advise(config, now, circumstances) == []
