"""Models that trained where a GPU was once said to be too small: nothing that may be less decides against a job."""

from typing import Any

import pytest

from deepspeed_operator.api.facts import ModelFacts
from deepspeed_operator.job.units import GIB
from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.memory.fit import Fit, MemoryFit, fit_of
from deepspeed_operator.plan.memory.peaks import Memory, PhaseName, memory
from deepspeed_operator.plan.model.declared import model_of
from tests.models import LLAMA_13B

CONFIG: dict[str, Any] = {"bf16": {"enabled": True}, "optimizer": {"type": "AdamW"}}
MODEL: dict[str, Any] = {
    "fromConfig": LLAMA_13B,
    "trainableParameters": 13_015_864_320,
    "sequenceLength": 1024,
    "attention": "Flash",
    "activationCheckpointing": True,
}
# ZeRO-2 on eight A100-80G: 72.2 GB with a micro batch of 1, 80.9 with 24, 83.1 with 27, out of memory with 28.
ROBOT_34B: dict[str, Any] = {
    "parameters": 34_300_000_000,
    "trainableParameters": 910_000_000,
    "layers": 64,
    "hiddenSize": 5120,
    "intermediateSize": 25_600,
    "heads": 64,
    "keyValueHeads": 8,
    "vocabulary": 151_936,
    "sequenceLength": 201,
    "attention": "SDPA",
    "activationCheckpointing": False,
}


def fit(facts: dict[str, Any], gib: int, world: int, *, micro: int = 1, version: str = "0.19.8") -> MemoryFit:
    setup = setup_of({**CONFIG, "zero_optimization": {"stage": 2}}, world, version)
    return fit_of(setup, model_of(ModelFacts.model_validate(facts)), micro, 1, gib * GIB)


def of_13b(stage: int, world: int, version: str = "0.19.8", **zero: Any) -> Memory:
    setup = setup_of({**CONFIG, "zero_optimization": {"stage": stage, **zero}}, world, version)
    return memory(setup, model_of(ModelFacts.model_validate(MODEL)))


def terms(found: Memory) -> set[str]:
    return {item.what for phase in found.phases for item in phase.items}


@pytest.mark.parametrize("version", ["0.15.4", "0.17.6", "0.18.9", "0.19.8"])
def test_a_second_copy_of_the_parameters_that_may_lie_on_the_host_does_not_decide(version: str) -> None:
    found = fit(MODEL, 40, 64, version=version)
    assert found.fit is Fit.YES
    assert found.memory.needed / GIB == pytest.approx(32, abs=1)


@pytest.mark.parametrize(("version", "copies"), [("0.17.6", False), ("0.18.9", True), ("0.19.8", True)])
def test_a_gpu_with_room_for_both_copies_shows_both_since_0_18_7(version: str, copies: bool) -> None:
    found = of_13b(2, 64, version)
    both = 2 * 2 * 13_015_864_320
    assert found.allocated(80 * GIB) == (both if copies else found.size)
    assert found.allocated(40 * GIB) == found.allocated(None) == found.size < both


def test_the_copy_that_bf16_optimizer_makes_is_always_on_the_gpu() -> None:
    summing = {**CONFIG, "zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "fp32"}}
    first = memory(setup_of(summing, 64, "0.19.8"), model_of(ModelFacts.model_validate(MODEL))).phases[0]
    assert first.name is PhaseName.INIT
    assert first.size >= 2 * 2 * 13_015_864_320


@pytest.mark.parametrize("micro", [1, 8, 16, 24, 27])
def test_a_frozen_backbones_activations_do_not_decide_against_a_job(micro: int) -> None:
    assert fit(ROBOT_34B, 80, 8, micro=micro, version="0.18.9").fit is not Fit.NO


def test_what_frozen_layers_may_keep_is_named() -> None:
    found = fit(ROBOT_34B, 80, 8, micro=24)
    assert (found.fit, found.open) == (Fit.UNKNOWN, ("that frozen layers keep activations, which is assumed",))


def test_where_all_is_trained_activations_decide() -> None:
    whole = {**MODEL, "activationCheckpointing": False}
    assert fit(whole, 80, 64, micro=1).fit is Fit.YES
    assert fit(whole, 80, 64, micro=8).fit is Fit.NO
    silent = {name: value for name, value in whole.items() if name != "trainableParameters"}
    assert fit(silent, 80, 64, micro=8).fit is Fit.UNKNOWN


@pytest.mark.parametrize("stage", [0, 1])
def test_gradients_are_those_of_the_trained_part(stage: int) -> None:
    setup = setup_of({**CONFIG, "zero_optimization": {"stage": stage}}, 8, "0.19.8")
    facts = {"fromConfig": LLAMA_13B, "trainableParameters": 130_000_000}
    model = model_of(ModelFacts.model_validate(facts))
    backward = next(phase for phase in memory(setup, model).phases if phase.name is PhaseName.BACKWARD)
    sizes = {item.what: item.size for item in backward.items}
    assert sizes["gradients"] == pytest.approx(2 * 130_000_000, rel=0.01)


def test_stage_3_on_one_rank_gathers_nothing() -> None:
    gathered = {"gathered parameters", "small parameters, whole"}
    assert terms(of_13b(3, 2)) >= {*gathered, "gather buffer"}
    assert not terms(of_13b(3, 1)) & {*gathered, "gather buffer"}
    from_host = terms(of_13b(3, 1, offload_param={"device": "cpu"}))
    assert from_host >= gathered
    assert "gather buffer" not in from_host
