"""What a job computes in decides how long that takes, and whether another type is advised."""

from dataclasses import replace
from typing import Any

import pytest

from deepspeed_operator.job.data_sheets import DEVICES
from deepspeed_operator.job.precision import Precision, precision_of
from deepspeed_operator.plan.advice.alternatives import Alternative, Circumstances, advise, plan_of
from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.model.architecture import declared
from deepspeed_operator.plan.time.calibration import calibrated
from deepspeed_operator.plan.time.costs import assumed
from deepspeed_operator.plan.time.links import Bandwidth, Links
from deepspeed_operator.plan.time.step_time import StepTime
from tests.unit.plan.machine import MODEL, configuration, costs, run

OFF: dict[str, Any] = {"enabled": False}
FP32, FP16 = {"bf16": OFF}, {"bf16": OFF, "fp16": {"enabled": True}}
BF16: dict[str, Any] = {}


def around(gpu: str, seconds: float | None = None) -> Circumstances:
    device = DEVICES[gpu]
    links = Links(Bandwidth(device.interconnect), None)
    return Circumstances(MODEL, 2, 1, "0.19.8", assumed(MODEL, device, links, tokens=1024, declared=seconds))


def job(precision: dict[str, Any]) -> dict[str, Any]:
    return {**configuration(1, 4), **precision}


def advised(precision: dict[str, Any], there: Circumstances) -> list[Alternative]:
    return advise(job(precision), plan_of(job(precision), 4, 4, there), there)


def time(precision: dict[str, Any], there: Circumstances) -> StepTime:
    found = plan_of(job(precision), 4, 4, there).time
    assert found is not None
    return found


def computing(precision: dict[str, Any], gpu: str) -> float:
    return time(precision, around(gpu)).compute


def only_precision(found: list[Alternative]) -> list[Alternative]:
    return [each for each in found if {path.partition(".")[0] for path in each.change.values} <= {"bf16", "fp16"}]


@pytest.mark.parametrize("gpu", DEVICES)
def test_fp32_is_computed_without_tensor_cores(gpu: str) -> None:
    half = FP16 if DEVICES[gpu].half is Precision.FP16 else BF16
    # GeForce cards add 16-bit products up in fp32 at half the rate: only twice that of fp32 without tensor cores.
    assert computing(FP32, gpu) > (1 if gpu.startswith("RTX") else 2) * computing(half, gpu)


def test_a_v100_is_as_much_faster_in_fp16_as_nvidia_measured_of_bert_large() -> None:
    """DeepLearningExamples, PyTorch 19.07, DGX-1: sequences of 128 a second, one GPU of 32 GB."""
    bert = declared(336_000_000)
    found = assumed(bert, DEVICES["V100-32G"], Links(None, None), tokens=128)
    assert 1 / found.sample_in(Precision.FP32) == pytest.approx(40.3, rel=0.15)
    assert 1 / found.sample_in(Precision.FP16) == pytest.approx(172, rel=0.15)


@pytest.mark.parametrize(("gpu", "half"), [("A100-80G", "bf16"), ("V100-32G", "fp16"), ("T4-16G", "fp16")])
def test_an_fp32_job_is_told_of_the_type_that_its_gpu_multiplies_and_of_its_gain(gpu: str, half: str) -> None:
    [found] = only_precision(advised(FP32, around(gpu)))
    assert dict(found.change.values) == {f"{half}.enabled": True}
    assert (found.gain or 0) > 3
    assert f"computes in {half}" in found.change.caveat


def test_tf32_would_make_less_of_the_gain_where_a_gpu_has_it() -> None:
    [on_ampere], [before] = (only_precision(advised(FP32, around(gpu))) for gpu in ("A100-80G", "V100-32G"))
    assert "TF32" in on_ampere.change.caveat
    assert "TF32" not in before.change.caveat


def test_bf16_is_no_advice_where_no_tensor_core_knows_it_but_fp16_is() -> None:
    [found] = only_precision(advised(BF16, around("V100-32G")))
    assert dict(found.change.values) == {"bf16.enabled": False, "fp16.enabled": True}
    assert (found.gain or 0) > 3
    assert only_precision(advised(BF16, around("A100-80G"))) == []
    assert only_precision(advised(FP16, around("V100-32G"))) == []


def test_the_seconds_that_a_user_says_are_of_the_job_as_it_is() -> None:
    said = around("V100-32G", seconds=0.5)
    assert time(FP32, said).compute == time(FP16, said).compute == pytest.approx(16 * 0.5)
    assert not any("bf16.enabled" in each.change.values for each in advised(FP32, said))


def test_what_was_measured_in_bf16_is_a_lower_bound_of_fp32_and_no_advice() -> None:
    measured = calibrated(run("nvlink", costs(200e9)), "nvlink").costs
    there = Circumstances(MODEL, 2, 1, "0.19.8", measured)
    assert time(FP32, there).unproven == ("fp32, since bf16 was measured",)
    assert time(BF16, there).unproven == ()
    assert time(FP32, replace(there, costs=replace(measured, measured_in=Precision.FP32))).unproven == ()


@pytest.mark.parametrize(
    ("section", "precision"),
    [
        ({}, Precision.FP32),
        ({"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}, Precision.BF16),
        ({"torch_autocast": {"enabled": True, "dtype": "torch.float32"}}, Precision.FP32),
        ({"torch_autocast": {"enabled": True}}, Precision.FP16),
        ({"torch_autocast": {"enabled": False, "dtype": "bfloat16"}}, Precision.FP32),
        ({"amp": {"enabled": True}}, Precision.FP16),
    ],
)
def test_autocast_decides_what_a_model_in_fp32_computes_in(section: dict[str, Any], precision: Precision) -> None:
    assert precision_of(setup_of({**job(FP32), **section}, 2, "0.19.8")) is precision
