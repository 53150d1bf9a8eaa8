"""What a step is made of: at stage 3 computing goes on behind the Python that starts it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from deepspeed_operator.api.facts import Lora, ModelFacts, Quantization
from deepspeed_operator.job.data_sheets import DEVICES
from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.model.declared import model_of
from deepspeed_operator.plan.model.hugging_face import from_hugging_face
from deepspeed_operator.plan.time.costs import Costs, Work, assumed
from deepspeed_operator.plan.time.links import Links
from deepspeed_operator.plan.time.step_time import step_time, visits
from deepspeed_operator.plan.traffic.communication import communication
from tests.unit.plan.machine import LLAMA, MODEL, configuration, costs, time_of

MODELS = Path(__file__).parents[4] / "bench/gpu/models"
FAST = costs(292e9)
# Nothing of stage 3's Python but a copy of each gradient.
IDLE = replace(FAST, gather=0.0, module=0.0, reduction={**FAST.reduction, Work.GATHERED: 10e-12})


def of_samples(costs: Costs, few: int, many: int, stage: int = 3) -> float:
    """By how much more samples make a step longer, as a share of what they compute."""
    less, more = (time_of(configuration(stage, 1, micro), costs) for micro in (few, many))
    return (more.seconds - less.seconds) / (more.compute - less.compute)


@pytest.mark.parametrize("hides", [0.0, 0.5, 0.7])
def test_while_python_takes_longer_samples_cost_what_it_does_not_hide(hides: float) -> None:
    assert of_samples(replace(FAST, hides=hides), 1, 4) == pytest.approx(1 - hides)


def test_where_computing_takes_longer_samples_cost_all_of_it() -> None:
    assert of_samples(FAST, 32, 64) == pytest.approx(1)


@pytest.mark.parametrize("stage", range(3))
def test_below_stage_3_nothing_is_hidden(stage: int) -> None:
    assert of_samples(FAST, 1, 4, stage) == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "called"),
    [("mistral", 292), ("qwen3", 426), ("gpt2-large", 583), ("llama-3b", 370), ("gemma2", 246), ("gemma3", 278)],
)
def test_stage_3_visits_every_module_in_both_passes(name: str, called: int) -> None:
    """Dropouts and activations, too: so many transformers 5.17 called in a forward pass, counted by hooks on a CPU."""
    model = from_hugging_face(json.loads((MODELS / f"{name}.json").read_text()))
    setup = setup_of(configuration(3, 1, 1), 2, "0.19.8")
    assert visits(setup, model, 4)[1] == 4 * 2 * called


@pytest.mark.parametrize(("again", "passes"), [(False, 2), (True, 3)])
def test_weights_in_4_bits_are_made_whole_in_each_pass(again: bool, passes: int) -> None:
    """0.5625 bytes are read of each, and 2 written, at the rate of the GPU's memory at best."""
    device = DEVICES["RTX4090-24G"]

    def compute(quantization: Quantization) -> float:
        facts = ModelFacts(from_config=LLAMA, lora=Lora(rank=16), activation_checkpointing=again, sequence_length=1024)
        model = model_of(facts.model_copy(update={"quantization": quantization}))
        costs = assumed(model, device, Links(None, None), tokens=1024)
        setup = setup_of(configuration(2, 4, 1), 1, "0.19.8")
        found = step_time(setup, model, communication(setup, model, 4), costs, micro=1, accumulation=4)
        assert found is not None
        return found.compute

    layers = MODEL.parameters - 2 * 2048 * 32000
    more = 4 * passes * layers * 2.5625 / device.memory_rate
    assert compute(Quantization.NF4) - compute(Quantization.NONE) == pytest.approx(more, rel=0.01)


def test_copies_of_gradients_are_never_hidden() -> None:
    time = time_of(configuration(3, 1), IDLE)
    assert time.work == pytest.approx(time_of(configuration(3, 1), replace(IDLE, hides=0.0)).work)
    assert time.work > 0
