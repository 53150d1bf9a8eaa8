"""DeepSpeed's first steps are measured beside a user's program, and status.plan says what they mean."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.jobs import NO_GPU, job, script
from tests.e2e.kube import Job, Json, Namespace, eventually

SEEN_WITHIN_SECONDS = 60
PARAMETERS = 2 * (1024 * 1024 + 1024)
ACCUMULATION = 24  # of a step, so that most is traffic, of which stage 1 would save nearly all
TRAFFIC = ACCUMULATION * 4 * PARAMETERS + 4 * PARAMETERS / 2
AGAIN = 2
CONFIG: Json = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": ACCUMULATION,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
    "zero_optimization": {"stage": 2},
}


@pytest.fixture(scope="module")
def namespace(make_namespace: Callable[..., Namespace]) -> Namespace:
    made = make_namespace("first-steps")
    made.config_map("first-steps", script("first_steps.py"))
    return made


@pytest.fixture(scope="module")
def measured(namespace: Namespace, image: Callable[[str], str]) -> Job:
    """A job as it was when its first steps were told; it still runs.

    Measured again where others took the CPUs from the bandwidth: steps are then faster than their traffic.
    """
    training = {
        "script": "first_steps.py",
        "args": ["--config", "$(DEEPSPEED_CONFIG)", "--stay", "1800"],
        "files": {"configMap": "first-steps"},
    }
    model = {"parameters": PARAMETERS}
    resources = {"resources": NO_GPU}
    wide = job("wide", image("worker"), training=training, trainer=resources, dsConfig=CONFIG, model=model)
    namespace.apply(wide)
    for _ in range(AGAIN):
        if _share(_measured(namespace)) < 1:
            break
        namespace.delete("wide")
        namespace.apply(wide)
    return _measured(namespace)


def _measured(namespace: Namespace) -> Job:
    own = eventually(lambda: _result(namespace), lambda: namespace.report("wide"), 90)

    def told(job: Job) -> bool:
        return "plan" in job.status and job.status.get("progress", {}).get("step") == own["steps"]

    return namespace.wait("wide", told, SEEN_WITHIN_SECONDS)


def _share(measured: Job) -> float:
    """Of a step, at the bandwidth that was measured."""
    plan = measured.status["plan"]
    return TRAFFIC / plan["busBandwidth"] / plan["measuredStepSeconds"]


def _result(namespace: Namespace) -> dict[str, Any] | None:
    if not namespace.job("wide").holds("Running"):
        return None
    lines = namespace.log("wide-1-0").splitlines()
    said = next((line for line in lines if line.startswith("RESULT ")), None)
    return json.loads(said.removeprefix("RESULT ")) if said is not None else None


@pytest.mark.alone  # its steps are measured; the others look at what was told of them
def test_it_is_told_while_the_job_runs_and_agrees_with_what_the_program_measures(
    namespace: Namespace, measured: Job
) -> None:
    assert measured.holds("Running")
    plan, own = measured.status["plan"], _result(namespace)
    assert own is not None
    assert own["parameters"] == PARAMETERS
    assert plan["measuredStepSeconds"] == pytest.approx(own["step"], rel=0.05)
    # Of two ranks, the bus bandwidth is that of the bytes, and not of bits; a busy machine's changes from run to run.
    assert own["bandwidth"] / 5 < plan["busBandwidth"] < own["bandwidth"] * 5
    # At the bandwidth of the best size at least.
    percent = 100 * _share(measured)
    assert 0.95 * percent <= plan["networkPercent"] <= min(100, 2 * percent)


def test_status_tells_the_step_of_a_plain_loop_and_no_percent(namespace: Namespace, measured: Job) -> None:
    progress, own = measured.status["progress"], _result(namespace)
    assert own is not None
    assert (progress["source"], progress["step"]) == ("DeepSpeedEngine", own["steps"])
    assert {"percent", "totalSteps", "eta"}.isdisjoint(progress)
    assert progress["stepSeconds"]["median"] == pytest.approx(own["step"], rel=0.5)
    assert progress["samplesPerSecond"] == pytest.approx(2 * ACCUMULATION / own["step"], rel=0.5)
    assert progress["learningRate"] == 0.0001
    table = namespace.cluster.kubectl("get", "dsj", "wide", f"--namespace={namespace.name}")
    assert table.split()[:8] == ["NAME", "STATE", "NODES", "STEP", "PROGRESS", "ETA", "RESTARTS", "AGE"]
    assert table.split()[8:12] == ["wide", "Running", "2", str(own["steps"])]


def test_of_a_cpu_nothing_is_predicted_and_that_is_said(measured: Job) -> None:
    plan = measured.status["plan"]
    assert "predictedStepSeconds" not in plan
    assert "measuredPeakMemory" not in plan
    assert "nothing is known here of the device" in plan["message"]


def test_a_faster_stage_is_advised_once(namespace: Namespace, measured: Job) -> None:
    found = [each for each in measured.status["findings"] if each["message"].startswith("Measured: ")]
    assert len(found) == 1, namespace.report("wide")
    (finding,) = found
    assert (finding["level"], finding["path"]) == ("advice", "spec.dsConfig")
    assert "zero_optimization.stage: 1 is predicted to be" in finding["message"]
    (event,) = namespace.told("wide", "FasterConfiguration")
    assert event["type"] == "Normal"
    assert event.get("count", 1) == 1
    namespace.delete("wide", "--wait=false")
