"""Memory of a GPU, from DeepSpeed's code. test_memory_measured.py compares it with what GPUs really held."""

from dataclasses import replace
from typing import Any

import pytest

from deepspeed_operator.api.facts import ModelFacts
from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.memory.fit import Fit, MemoryFit, fit_of
from deepspeed_operator.plan.memory.host import host_memory
from deepspeed_operator.plan.memory.peaks import Memory, PhaseName, memory
from deepspeed_operator.plan.model.architecture import Model, UnknownModelError, declared
from deepspeed_operator.plan.model.declared import model_of
from tests.unit.plan import machine

GIB = 2**30
PSI = 10**9
LLAMA: dict[str, Any] = {**machine.LLAMA, "max_position_embeddings": 8192}
KNOWN: dict[str, Any] = {
    "trainableParameters": 1_345_423_360,
    "sequenceLength": 1024,
    "attention": "SDPA",
    "activationCheckpointing": False,
}


def config(stage: int, *, optimizer: Any = None, **top: Any) -> dict[str, Any]:
    zero = {"stage": stage, "reduce_bucket_size": 1_000_000, **top.pop("zero", {})}
    adam: dict[str, Any] = {"type": "AdamW", "params": optimizer or {}}
    return {"bf16": {"enabled": True}, "optimizer": adam, "zero_optimization": zero, **top}


def of_states(stage: int, *, world: int = 4, version: str = "0.19.8", accumulation: int = 1, **given: Any) -> Memory:
    """A thousand million parameters and no activations."""
    return memory(setup_of(config(stage, **given), world, version), declared(PSI), 1, accumulation)


def bytes_a_parameter(found: Memory, name: PhaseName) -> float:
    """Without cuBLAS, which takes the same whatever is trained."""
    phase = next(phase for phase in found.phases if phase.name is name)
    return sum(item.size for item in phase.items if not item.what.startswith("cuBLAS")) / PSI


def llama(**facts: Any) -> Model:
    return model_of(ModelFacts.model_validate({"fromConfig": LLAMA, **facts}))


def fit(capacity: float, stage: int = 2, micro: int = 4, /, **facts: Any) -> MemoryFit:
    return fit_of(setup_of(config(stage), 2, "0.19.8"), llama(**facts), micro, 1, round(capacity * GIB))


def test_stage_0_copies_gradients_to_fp32_twice_at_the_step() -> None:
    """Weights and gradients in bf16, master weights, two moments, gradients in fp32 one by one and flat."""
    assert bytes_a_parameter(of_states(0), PhaseName.STEP) == 2 + 2 + 12 + 4 + 4


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (1, 2 + (12 + 2 + 2 + 4) / 4),
        (2, 2 + (12 + 2 + 2 + 4) / 4),
        (3, (2 + 12 + 2 + 2 + 4) / 4 + 0.002),
    ],
)
def test_a_stage_divides_what_the_step_needs(stage: int, expected: float) -> None:
    assert bytes_a_parameter(of_states(stage), PhaseName.STEP) == pytest.approx(expected, abs=0.001)


def test_torchs_own_adam_takes_one_more_copy_of_the_second_moments() -> None:
    fused, torch = (of_states(2, optimizer=params) for params in ({}, {"torch_adam": True}))
    assert bytes_a_parameter(fused, PhaseName.STEP) == bytes_a_parameter(torch, PhaseName.STEP) == 2 + 20 / 4
    alone = bytes_a_parameter(of_states(0, optimizer={"torch_adam": True}), PhaseName.STEP)
    assert alone == 2 + 2 + 12 + 4 + 4


def test_bf16_at_stage_0_had_another_wrapper_before_0_17() -> None:
    """BF16_Optimizer divides states, and sums gradients in fp32."""
    assert bytes_a_parameter(of_states(0, version="0.15.4"), PhaseName.SAVE) == 2 + 4 + 2 + 12 / 4
    assert bytes_a_parameter(of_states(0, version="0.16.9"), PhaseName.SAVE) == 2 + 4 + 12 / 4
    assert bytes_a_parameter(of_states(0, version="0.19.8"), PhaseName.SAVE) == 14


def test_offloaded_states_are_not_on_the_gpu() -> None:
    offloaded = of_states(2, zero={"offload_optimizer": {"device": "cpu"}})
    assert bytes_a_parameter(offloaded, PhaseName.STEP) < 2.1


def test_stage_2_holds_a_second_part_of_gradients_when_it_accumulates() -> None:
    once, often = (bytes_a_parameter(of_states(2, accumulation=steps), PhaseName.BACKWARD) for steps in (1, 4))
    assert often - once == pytest.approx(2 / 4, abs=0.001)


def of_stage_3(version: str = "0.19.8", **zero: Any) -> dict[PhaseName, int]:
    """Bytes of each phase of a model whose parameters are known one by one."""
    found = memory(setup_of(config(3, zero=zero), 2, version), llama(**KNOWN), 4)
    return {phase.name: phase.size for phase in found.phases}


def test_stage_3_has_small_parameters_whole_from_a_step_to_the_next() -> None:
    none, some = (of_stage_3(stage3_param_persistence_threshold=limit) for limit in (0, 5_000_000))
    small = 24 * (4 * 2048 * 2048 + 2 * 2048) + 2048
    assert some[PhaseName.SAVE] - none[PhaseName.SAVE] == 2 * small
    assert (some[PhaseName.INIT], some[PhaseName.STEP]) == (none[PhaseName.INIT], none[PhaseName.STEP])


@pytest.mark.parametrize(
    ("version", "on_host", "copies"),
    [("0.17.6", False, 2), ("0.17.6", True, 2), ("0.18.9", False, 1), ("0.19.8", False, 1), ("0.19.8", True, 1.5)],
)
def test_stage_3_gathers_each_parameter_alone_when_the_engine_is_made(
    version: str, on_host: bool, copies: float
) -> None:
    """Beside a rank's part and the bucket; from the host the part of the parameter is copied first."""
    offload = {"offload_optimizer": {"device": "cpu"}, **({"offload_param": {"device": "cpu"}} if on_host else {})}
    found = of_stage_3(version, **offload)[PhaseName.INIT]
    there = 2 * 1_000_000 + (0 if on_host else 1_345_423_360)
    assert found - there == copies * 2 * 32000 * 2048


@pytest.mark.parametrize(("version", "sums"), [("0.18.9", True), ("0.19.8", False)])
def test_stage_1_sums_no_gradients_on_the_host_since_0_19(version: str, sums: bool) -> None:
    setup = setup_of(config(1, zero={"offload_optimizer": {"device": "cpu"}}), 2, version)
    once, often = (sum(item.size for item in host_memory(setup, llama(**KNOWN), 4, steps, 2)) for steps in (1, 4))
    assert (often > once) is sums


def test_the_heads_outputs_gradient_is_gone_when_the_bucket_comes() -> None:
    setup = setup_of(config(2, zero={"overlap_comm": True, "reduce_bucket_size": 500_000_000}), 2, "0.19.8")
    backward = memory(setup, llama(**KNOWN), 4).peak
    items = {item.what: item.size for item in backward.items}
    assert items["reduce bucket"] == 2 * 2 * 500_000_000
    assert "loss and logits" not in items


def test_frozen_parameters_have_neither_gradients_nor_states() -> None:
    model = replace(declared(PSI), trainable=PSI // 100)
    found = memory(setup_of(config(0), 2, "0.19.8"), model)
    assert bytes_a_parameter(found, PhaseName.STEP) == pytest.approx(2 * 0.99 + 24 * 0.01, abs=0.01)


def test_activations_of_a_layer_are_those_that_autograd_saves() -> None:
    """24 h + 8 i bytes of a token, beside fp32 scores of the vocabulary."""
    found = memory(setup_of(config(0), 1, "0.19.8"), llama(**KNOWN), 4)
    forward = next(phase for phase in found.phases if phase.name is PhaseName.FORWARD)
    items = {item.what: item.size for item in forward.items}
    assert items["activations"] / (24 * 4096) == pytest.approx(24 * 2048 + 8 * 5504, rel=0.02)
    assert items["loss and logits"] == 4096 * 32000 * (2 + 4 + 4)


def test_checkpointing_keeps_the_input_of_each_layer_only() -> None:
    whole, again = (
        memory(setup_of(config(0), 1, "0.19.8"), llama(**{**KNOWN, "activationCheckpointing": on}), 4)
        for on in (False, True)
    )
    saved = bytes_a_parameter(whole, PhaseName.FORWARD) - bytes_a_parameter(again, PhaseName.FORWARD)
    assert saved * PSI / (24 * 4096) == pytest.approx(22 * 2048 + 8 * 5504, rel=0.02)


def test_eager_attention_keeps_scores_that_grow_with_the_square_of_the_sequence() -> None:
    sdpa, eager = (
        memory(setup_of(config(0), 1, "0.19.8"), llama(**{**KNOWN, "attention": kernel}), 4)
        for kernel in ("SDPA", "Eager")
    )
    more = bytes_a_parameter(eager, PhaseName.FORWARD) - bytes_a_parameter(sdpa, PhaseName.FORWARD)
    assert more * PSI == pytest.approx(24 * 4 * 16 * 1024 * 1024 * 6, rel=0.01)


def test_adapters_are_counted_and_leave_less_to_keep() -> None:
    lora = {"rank": 16, "targets": ["q_proj", "v_proj"]}
    model = llama(sequenceLength=1024, lora=lora)
    assert model.trained == 24 * 2 * 16 * (2048 + 2048)
    found = memory(setup_of(config(2), 2, "0.19.8"), model, 4)
    whole = memory(setup_of(config(2), 2, "0.19.8"), llama(sequenceLength=1024), 4)
    assert found.size < 0.6 * whole.size


def test_nf4_stores_four_bits_and_a_scale_of_each_matrix() -> None:
    facts = {"sequenceLength": 1024, "lora": {"rank": 16}}
    plain, small = (llama(**facts), llama(**facts, quantization="NF4"))
    saved = (memory(setup_of(config(2), 2, "0.19.8"), each, 1).phases[0].size for each in (plain, small))
    ends = 2 * 32000 * 2048
    assert next(saved) - next(saved) == pytest.approx((1_345_423_360 - ends) * (2 - 0.5625), rel=0.01)


def test_enough_or_too_little_memory_is_said_when_all_is_declared() -> None:
    assert fit(80, **KNOWN).fit is Fit.YES
    small = fit(16, **KNOWN)
    assert small.fit is Fit.NO
    assert "backward pass and reduction, where activations take most" in str(small)


def test_within_the_predictions_error_nothing_is_said_for_sure() -> None:
    exactly = fit(80, **KNOWN).memory.needed / GIB
    near = fit(exactly, **KNOWN)
    assert (near.fit, near.open) == (Fit.UNKNOWN, ("the prediction's error of 10%",))


@pytest.mark.parametrize("name", ["trainableParameters", "activationCheckpointing"])
def test_an_assumed_fact_that_could_make_it_fit_is_named(name: str) -> None:
    found = fit(16, **{fact: value for fact, value in KNOWN.items() if fact != name})
    assert found.fit is Fit.UNKNOWN
    assert any(name in each for each in found.open)


@pytest.mark.parametrize("name", ["attention", "sequenceLength"])
def test_an_assumed_fact_that_could_make_it_too_large_is_named(name: str) -> None:
    known = {fact: value for fact, value in KNOWN.items() if fact != name}
    found = fit(80 if name == "sequenceLength" else 30, **known)
    assert found.fit is Fit.UNKNOWN
    assert any(name in each for each in found.open)


def test_what_is_too_large_whatever_is_assumed_does_not_fit() -> None:
    assert fit(3, micro := 1, micro).fit is Fit.NO


def test_without_the_shape_of_the_model_it_is_never_said_to_fit() -> None:
    model = model_of(ModelFacts(parameters=1_000_000))
    found = fit_of(setup_of(config(0), 1, "0.19.8"), model, 1, 1, 80 * GIB)
    assert found.fit is Fit.UNKNOWN
    assert "activations" in found.open[0]


def test_hpz_holds_a_copy_of_all_parameters_in_each_node_while_a_step_goes_on() -> None:
    plain, near = (of_states(3, world=16, zero=zero) for zero in ({}, {"zero_hpz_partition_size": 8}))
    more = {
        name: round(bytes_a_parameter(near, name) - bytes_a_parameter(plain, name), 6)
        for name in (phase.name for phase in plain.phases)
    }
    copy = 2 / 8
    during = (PhaseName.INIT, PhaseName.FORWARD, PhaseName.BACKWARD, PhaseName.STEP)
    assert more == {**dict.fromkeys(during, copy), PhaseName.SAVE: 0}
    zero = {"zero_hpz_partition_size": 8}
    assert fit_of(setup_of(config(3, zero=zero), 16, "0.19.8"), llama(**KNOWN), 4, 1, 80 * GIB).fit is Fit.YES


def test_hpzs_copy_of_parameters_on_the_host_is_there() -> None:
    zero: dict[str, Any] = {"offload_param": {"device": "cpu", "pin_memory": False}, "zero_hpz_partition_size": 8}
    setup = setup_of(config(3, zero=zero), 16, "0.19.8")
    host = {item.what: item.size for item in host_memory(setup, declared(PSI), 1, 1, 8)}
    assert host["hpZ's copy of the parameters, divided"] == 8 * 2 * PSI / 8
    assert all("hpZ" not in item.what for phase in memory(setup, declared(PSI)).phases for item in phase.items)


def test_a_feature_without_a_formula_is_named() -> None:
    setup = setup_of(config(0, tensor_parallel={"autotp_size": 2}), 2, "0.19.8")
    assert fit_of(setup, llama(**KNOWN), 1, 1, 80 * GIB).open == ("not measured with tensor parallelism",)


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ({}, "neither"),
        ({"parameters": 7, "fromConfig": LLAMA}, "contradict"),
        ({"parameters": 10**9, "lora": {"rank": 8}}, "lora needs"),
        ({"fromConfig": LLAMA, "lora": {"rank": 8, "targets": ["query"]}}, "query"),
    ],
)
def test_facts_that_make_no_model_are_refused(facts: dict[str, Any], named: str) -> None:
    with pytest.raises(UnknownModelError, match=named):
        model_of(ModelFacts.model_validate(facts))


def test_declared_numbers_make_the_same_model_as_its_config() -> None:
    numbers = {"parameters": 1_345_423_360, "layers": 24, "hiddenSize": 2048, "heads": 16, "vocabulary": 32000}
    given = model_of(ModelFacts.model_validate({**numbers, **KNOWN}))
    setup = setup_of(config(2), 2, "0.19.8")
    assert memory(setup, given, 4).size == pytest.approx(memory(setup, llama(**KNOWN), 4).size, rel=0.02)
