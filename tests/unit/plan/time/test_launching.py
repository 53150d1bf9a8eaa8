"""The host's part of a step: the longer one of host and GPU is what it takes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.job.data_sheets import DEVICES
from deepspeed_operator.plan.advice.alternatives import Circumstances, Plan, free_micro_batch, plan_of
from deepspeed_operator.plan.model.architecture import Usage
from deepspeed_operator.plan.model.hugging_face import from_hugging_face
from deepspeed_operator.plan.time.costs import assumed
from deepspeed_operator.plan.time.launching import USUAL, Host, kernels
from deepspeed_operator.plan.time.links import Bandwidth, Links
from tests.unit.plan.machine import configuration

MODELS = Path(__file__).parents[4] / "bench/gpu/models"
H200 = DEVICES["H200-141G"]
LINKS = Links(Bandwidth(H200.interconnect), None)


def model_config(name: str) -> dict[str, Any]:
    return json.loads((MODELS / f"{name}.json").read_text())


MISTRAL = replace(from_hugging_face(model_config("mistral")), usage=Usage(sequence=1024))


def planned(stage: int, micro: int, accumulation: int = 4, *, framework: bool = True, gpu: str = H200.name) -> Plan:
    return plan_of(configuration(stage, accumulation, micro), micro, accumulation, around(framework=framework, gpu=gpu))


def around(*, framework: bool = True, gpu: str = H200.name) -> Circumstances:
    costs = assumed(MISTRAL, DEVICES[gpu], LINKS, tokens=1024, framework=framework)
    return Circumstances(MISTRAL, 2, 1, "0.19.8", costs)


def seconds(plan: Plan) -> float:
    assert plan.time is not None
    return plan.time.seconds


@pytest.mark.parametrize(("name", "counted"), [("mistral", 2880), ("qwen3", 5048), ("gpt2", 1698)])
def test_kernels_are_about_as_many_as_a_profiler_counted(name: str, counted: int) -> None:
    assert kernels(from_hugging_face(model_config(name))) == pytest.approx(counted, rel=0.13)


def test_a_forward_pass_is_started_twice_for_checkpointing() -> None:
    twice = replace(MISTRAL, usage=replace(MISTRAL.usage, checkpointing=True))
    assert kernels(twice) == pytest.approx(kernels(MISTRAL) * 4 / 3)


def test_a_small_micro_batch_takes_as_long_as_the_host() -> None:
    """Whatever its samples, as long as they are few: the GPU waits."""
    one, two = (planned(1, micro, framework=False) for micro in (1, 2))
    assert one.time is not None
    assert two.time is not None
    assert two.time.host < one.time.host
    assert seconds(two) == pytest.approx(seconds(one))


def test_a_large_micro_batch_takes_as_long_as_the_gpu_and_what_a_framework_does_between() -> None:
    alone, under = planned(1, 16, framework=False), planned(1, 16)
    assert alone.time is not None
    assert alone.time.host == 0
    assert seconds(under) - seconds(alone) == pytest.approx(4 * 201 * USUAL.between)


def test_a_framework_that_waits_at_each_micro_step_leaves_less_behind_the_host() -> None:
    """As much of the computing as at stage 3, three tenths: measured were a loop's steps and the Trainer's."""
    one, two = planned(1, 1), planned(1, 2)
    assert one.time is not None
    assert two.time is not None
    assert seconds(two) - seconds(one) == pytest.approx(0.3 * (two.time.compute - one.time.compute))


def test_the_micro_batch_that_is_free_is_the_largest_that_is_hardly_slower() -> None:
    now = planned(1, 1)
    free = free_micro_batch(now, around())
    assert free is not None
    assert seconds(planned(1, free)) <= 1.1 * seconds(now) < seconds(planned(1, free + 1))
    assert free_micro_batch(planned(1, 16), around()) is None


def test_a_micro_batch_that_does_not_fit_is_not_free() -> None:
    now = planned(1, 1)
    room = replace(around(), capacity=planned(1, 2).memory.needed)
    assert free_micro_batch(now, room) == 2


def test_an_older_gpus_host_takes_longer() -> None:
    costs = {gpu: assumed(MISTRAL, DEVICES[gpu], LINKS, tokens=1024) for gpu in (H200.name, "A100-80G", "V100-32G")}
    kernel = {gpu: each.host.kernel for gpu, each in costs.items()}
    assert kernel[H200.name] < kernel["A100-80G"] < kernel["V100-32G"]
    assert costs["A100-80G"].module / costs[H200.name].module == pytest.approx(1.3)


def test_stage_0_takes_no_gradient_by_hand() -> None:
    def setup(stage: int) -> Setup:
        return planned(stage, 1).setup

    host = Host(gradient=1.0)
    assert [host.starting(setup(stage), MISTRAL, 2) for stage in (0, 1, 2)] == [0, 402, 402]
