"""Times and advice beside what was measured: a Llama of 1.345 B parameters in bf16, micro batch 4, on two H100s."""

from dataclasses import replace
from typing import Any

import pytest

from deepspeed_operator.api.facts import AttentionKernel, ModelFacts
from deepspeed_operator.job.data_sheets import DEVICES
from deepspeed_operator.plan.advice.alternatives import (
    Alternative,
    Circumstances,
    Plan,
    advise,
    advise_numbers,
    alternative,
    plan_of,
    shares,
    stages,
)
from deepspeed_operator.plan.advice.candidates import Change, changed
from deepspeed_operator.plan.model.architecture import Model, declared
from deepspeed_operator.plan.model.declared import model_of
from deepspeed_operator.plan.time.costs import Costs, assumed
from deepspeed_operator.plan.time.links import Bandwidth, Links
from tests.unit.plan.machine import LLAMA, MODEL, configuration

GIB = 2**30
SINGLE = "zero_optimization.use_multi_rank_bucket_allreduce"
H100 = DEVICES["H100-80G"]
CALIBRATED_WITH = 6.76  # samples/s at stage 0 without accumulation, over TCP sockets
# (stage, accumulation) → samples/s over the same.
MEASURED = {(2, 4): 6.85, (0, 4): 21.9}


def costs(rate: float) -> Costs:
    return assumed(MODEL, H100, Links(Bandwidth(rate), Bandwidth(rate)), tokens=1024, declared=0.09 / 4)


SOCKETS, NVLINK = costs(2.7e9), costs(292e9)


def around(costs: Costs = SOCKETS, capacity: int | None = None, model: Model = MODEL) -> Circumstances:
    return Circumstances(model, 2, 2, "0.19.8", costs, capacity)


def planned(stage: int, accumulation: int, **zero: Any) -> Plan:
    return plan_of(configuration(stage, accumulation, **zero), 4, accumulation, around())


def advised(around: Circumstances, stage: int = 2, steps: int = 4, micro: int = 4, **zero: Any) -> list[Alternative]:
    config = configuration(stage, steps, micro, **zero)
    return advise(config, plan_of(config, micro, steps, around), around)


def same_batch(alternatives: list[Alternative]) -> list[Alternative]:
    return [each for each in alternatives if not each.change.grows]


def test_stage_3_gathers_what_nccl_was_seen_to_gather() -> None:
    payload = planned(3, 4).traffic.payload()
    assert payload["all-gather"] / (2 * MODEL.parameters) == pytest.approx(5.03, abs=0.01)


def test_predicted_rates_are_near_those_that_were_measured() -> None:
    assert planned(0, 1).samples_per_second == pytest.approx(CALIBRATED_WITH, rel=0.05)
    assert {case: planned(*case).samples_per_second for case in MEASURED} == pytest.approx(MEASURED, rel=0.15)


def test_stage_3_is_not_promised_more_than_it_was_measured_to_do() -> None:
    """Without a calibration, nothing is assumed to overlap."""
    assert 7.04 * 0.6 < (planned(3, 4).samples_per_second or 0) < 7.04


def test_the_usual_recipe_gains_nothing_on_a_slow_network_and_stage_0_three_times_as_much() -> None:
    best = advised(around())[0]
    assert dict(best.change.values) == {"zero_optimization.stage": 0}
    assert best.gain == pytest.approx(21.9 / 6.85, rel=0.15)


def test_what_stage_0_saves_is_told_beside_the_best_choice_that_divides_states() -> None:
    second = advised(around())[1]
    assert dict(second.change.values) == {"zero_optimization.stage": 1, SINGLE: False}


def test_reduces_to_single_ranks_gain_a_quarter_of_the_step() -> None:
    now, single = planned(2, 4).time, planned(2, 4, use_multi_rank_bucket_allreduce=False).time
    assert now is not None
    assert single is not None
    assert 1 - single.seconds / now.seconds == pytest.approx(0.25, abs=0.05)


def test_on_nvlink_to_reduce_once_a_step_is_the_fastest() -> None:
    best = advised(around(NVLINK))[0]
    assert best.change.values["zero_optimization.stage"] in (0, 1)
    assert 1.1 < (best.gain or 0) < 1.25


def test_single_roots_are_no_advice_inside_a_node() -> None:
    slow = replace(around(), nodes=1)
    assert any(SINGLE in each.change.values for each in advised(around()))
    assert not any(SINGLE in each.change.values for each in advised(slow))


def test_every_alternative_keeps_the_global_batch_or_says_that_it_grows_and_comes_last() -> None:
    found = advised(around())
    grows = [each.change.grows for each in found]
    assert grows == sorted(grows)
    assert {each.plan.samples for each in same_batch(found)} == {32}
    assert found[-1].change.caveat == "the global batch grows from 32 to 128 samples"


def test_a_batch_that_grows_is_written_into_all_of_its_keys() -> None:
    config = {**configuration(2, 4), "train_batch_size": 32}
    now = plan_of(config, 4, 4, around())
    grown = next(each for each in advise(config, now, around()) if each.change.grows)
    made = changed(config, grown.change)
    assert made["train_batch_size"] == made["train_micro_batch_size_per_gpu"] * made["gradient_accumulation_steps"] * 2


def test_what_does_not_fit_is_not_advised() -> None:
    capacity = planned(1, 4).memory.needed + GIB
    assert planned(0, 4).memory.needed > capacity
    found = advised(around(capacity=capacity))
    assert found
    assert all(each.plan.setup.stage > 0 or each.plan.micro < 4 for each in found)


def test_what_fits_is_advised_where_the_configuration_does_not() -> None:
    small = around(capacity=planned(2, 4).memory.needed - 3 * GIB)
    found = advised(small)
    assert found
    assert all(each.plan.memory.needed <= (small.capacity or 0) for each in found)
    assert not any(each.change.grows for each in found)


def test_a_smaller_micro_batch_makes_room_at_the_same_global_batch() -> None:
    long = model_of(ModelFacts(from_config=LLAMA, sequence_length=4096))
    tight = around(NVLINK, capacity=60 * GIB, model=long)
    values = [dict(each.change.values) for each in advised(tight, stage=1, steps=1, micro=16)]
    assert any(each.get("train_micro_batch_size_per_gpu", 16) < 16 for each in values)


def test_without_the_network_there_is_no_time_and_no_advice() -> None:
    blind = around(replace(NVLINK, links=Links(Bandwidth(1e9), None)))
    assert plan_of(configuration(2, 4), 4, 4, blind).time is None
    assert advised(blind) == []


def test_a_lower_bound_is_no_advice() -> None:
    circumstances = Circumstances(declared(10**9), 2, 2, "0.18.9", SOCKETS)
    assert advised(circumstances) == []


def test_to_take_the_optimizer_back_from_the_host_is_advised_where_it_fits() -> None:
    offloaded: dict[str, Any] = {"offload_optimizer": {"device": "cpu"}}
    values = [dict(each.change.values) for each in advised(around(NVLINK), stage=1, **offloaded)]
    assert {"zero_optimization.offload_optimizer.device": "none"} in values


def test_fp32_models_are_told_of_bf16() -> None:
    config = {**configuration(1, 4), "bf16": {"enabled": False}}
    best = advise(config, plan_of(config, 4, 4, around()), around())[0]
    assert best.change.values["bf16.enabled"] is True
    assert "master weights in fp32" in best.change.caveat


def test_copies_in_each_node_are_advised_where_a_network_is_between_them() -> None:
    wide = Circumstances(MODEL, 16, 2, "0.19.8", SOCKETS, capacity=20 * GIB)
    limits = {"stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0}
    faster = replace(SOCKETS, links=Links(Bandwidth(292e9), Bandwidth(2.7e9)))
    wide = replace(wide, costs=faster, capacity=None)
    values = [dict(each.change.values) for each in advised(wide, stage=3, **limits)]
    assert {"zero_optimization.zero_hpz_partition_size": 8} in values


@pytest.mark.parametrize(("version", "offered"), [("0.15.4", False), ("0.19.8", True)])
def test_what_a_version_trains_wrongly_is_not_offered(version: str, offered: bool) -> None:
    """Before 0.18.3 hpZ's copies stay as they were before the step."""
    faster = replace(SOCKETS, links=Links(Bandwidth(292e9), Bandwidth(2.7e9)))
    wide = Circumstances(MODEL, 16, 2, version, faster)
    change = Change({"zero_optimization.zero_hpz_partition_size": 8}, 4, 4)
    config = configuration(3, 4)
    assert (alternative(config, change, plan_of(config, 4, 4, wide), wide) is not None) is offered


def test_every_stage_is_compared() -> None:
    config = configuration(2, 4)
    found = list(stages(config, plan_of(config, 4, 4, around()), around()))
    assert [plan.setup.stage for plan in found] == [0, 1, 2, 3]


def test_many_bf16_gradients_are_better_summed_in_fp32() -> None:
    few, many = planned(2, 8), planned(2, 16)
    assert advise_numbers(few) is None
    advice = advise_numbers(many)
    assert advice is not None
    assert dict(advice.values) == {"data_types.grad_accum_dtype": "fp32"}


def rate(stage: int, accumulation: int) -> float:
    found = plan_of(configuration(stage, accumulation), 4, accumulation, around(NVLINK)).samples_per_second
    assert found is not None
    return found


def test_what_accumulation_does_is_told_apart_from_what_zero_does() -> None:
    """On NVLink, the article's gain is accumulation's alone."""
    config = configuration(2, 4)
    found = shares(config, plan_of(config, 4, 4, around(NVLINK)), around(NVLINK))
    assert found is not None
    assert found.both > 1.2
    assert found.both == pytest.approx(found.accumulation * found.stage)
    assert found.accumulation > 1.2
    # As between the columns "stage 0, g 4" and "stage 2, g 4" of docs/gpu.md.
    assert found.stage == pytest.approx(rate(2, 4) / rate(0, 4))
    assert found.samples_before == 8


@pytest.mark.parametrize(("stage", "steps"), [(0, 4), (2, 1)])
def test_one_alone_is_not_told_apart(stage: int, steps: int) -> None:
    config = configuration(stage, steps)
    assert shares(config, plan_of(config, 4, steps, around()), around()) is None


def test_layers_of_experts_are_not_sent_to_stage_3_where_deepspeed_refuses_them() -> None:
    given = {"count": 8, "layers": 4, "parameters": 10**8, "topK": 2}
    sizes = {"layers": 16, "hiddenSize": 2048, "vocabulary": 32_000, "sequenceLength": 1024}
    mixture = model_of(ModelFacts.model_validate({"parameters": 4 * 10**9, "experts": given, **sizes}))
    plain = replace(mixture, experts=None)

    def stages_of(model: Model) -> set[int]:
        here = around(model=model, capacity=1 * GIB)
        config = configuration(2, 4)
        return {plan.setup.stage for plan in stages(config, plan_of(config, 4, 4, here), here)}

    assert stages_of(plain) == {0, 1, 2, 3}
    assert stages_of(mixture) == {0, 1, 2}


# A layer that is computed again keeps scores for a moment: nothing but more ranks makes them fewer.
LONG = model_of(
    ModelFacts(
        from_config=LLAMA, sequence_length=20_480, attention=AttentionKernel.EAGER, activation_checkpointing=True
    )
)
TENSOR = "tensor_parallel.autotp_size"


def in_a_node(gib: float, version: str = "0.19.8") -> Circumstances:
    links = Links(Bandwidth(292e9), None)
    return Circumstances(LONG, 8, 1, version, replace(NVLINK, links=links), capacity=round(gib * GIB))


def fitting(around: Circumstances, **others: Any) -> list[Alternative]:
    config = {**configuration(2, 4, micro=1), **others}
    return advise(config, plan_of(config, 1, 4, around), around)


def test_where_nothing_else_fits_the_model_is_divided_inside_the_node_without_a_promise() -> None:
    (found,) = fitting(in_a_node(75))
    assert found.change.values[TENSOR] == 2
    assert found.gain is None
    assert "neither its memory nor its time was measured" in found.change.caveat
    assert "the same samples" in found.change.caveat
    assert (found.plan.traffic.ranks, found.plan.samples) == (4, 32)


def test_a_division_goes_no_further_than_it_must_and_is_none_where_something_else_fits() -> None:
    nearly = plan_of(configuration(2, 4, micro=1), 1, 4, in_a_node(80)).memory.needed / GIB - 0.5
    sizes = [fitting(in_a_node(gib)) for gib in (nearly, 75, 40, 10)]
    assert [{each.change.values.get(TENSOR) for each in found} for found in sizes] == [{None}, {2}, {4}, set()]


def test_a_division_keeps_the_samples_of_a_step_in_all_keys_as_deepspeed_counts_them() -> None:
    (found,) = fitting(in_a_node(75), train_batch_size=32)
    made = changed({**configuration(2, 4, micro=1), "train_batch_size": 32}, found.change)
    assert made["train_batch_size"] == made["gradient_accumulation_steps"] * 8 == 64
    assert found.plan.samples == 32


def test_a_version_without_it_is_not_told_to_divide() -> None:
    assert fitting(in_a_node(75, "0.15.4")) == []
