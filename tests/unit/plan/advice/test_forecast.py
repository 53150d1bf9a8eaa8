"""What is foreseen of a job by its GPUs' data sheet, beside what bench/gpu measured of it and of the advice."""

from dataclasses import replace

import pytest

from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from deepspeed_operator.job.data_sheets import DEVICES
from deepspeed_operator.plan.advice.alternatives import Circumstances, plan_of
from deepspeed_operator.plan.advice.candidates import changed, changes
from deepspeed_operator.plan.advice.forecast import foresee
from deepspeed_operator.plan.advice.recalibration import faster
from deepspeed_operator.plan.memory.case import Case
from deepspeed_operator.plan.model.architecture import Usage
from deepspeed_operator.plan.model.hugging_face import from_hugging_face
from deepspeed_operator.plan.time.costs import assumed
from deepspeed_operator.plan.time.links import Bandwidth, Links
from tests.unit.plan.advice.test_recalibration import key, lines, measured_steps, runs
from tests.unit.plan.machine import LLAMA, NOTHING_STAYS, configuration

FABRICS = sorted({line["fabric"] for line in lines("timing*.jsonl") if line["fabric"].split("/")[-1] == "nvlink"})
MEASURED = [(fabric, name) for fabric in FABRICS for name in sorted({line["name"] for line in runs(fabric)})]
DEVICE = DEVICES["H200-141G"]
SLOW = Links(Bandwidth(DEVICE.interconnect), Bandwidth(2e9))


def case_of(fabric: str, name: str) -> Case:
    line = next(each for each in runs(fabric) if each["name"] == name)
    assert line["gpu"] == "NVIDIA H200"
    model = replace(from_hugging_face(line["model_config"]), usage=Usage(sequence=line["sequence"]))
    return Case(line["ds_config"], model, line["micro"], line["accumulation"], 2, "0.19.8", ParallelDegrees())


@pytest.mark.parametrize(("fabric", "name"), MEASURED)
def test_a_step_inside_a_node_is_foreseen_by_the_data_sheet(fabric: str, name: str) -> None:
    case = case_of(fabric, name)
    found = foresee(case, 1, DEVICE)
    assert found.time is not None
    assert found.time.seconds == pytest.approx(measured_steps(fabric)[key(dict(case.config))], rel=0.3)


def test_no_advice_before_a_run_changes_numbers() -> None:
    """ZeRO++'s int8 and int4 gain most between slow nodes, and are for people to choose: dsjob plan."""
    model = replace(from_hugging_face(LLAMA), usage=Usage(sequence=1024))
    case = Case(configuration(3, 4, **NOTHING_STAYS), model, 4, 4, 16, "0.19.8", ParallelDegrees())
    around = Circumstances(model, 16, 2, "0.19.8", assumed(model, DEVICE, SLOW, tokens=1024))
    now = plan_of(case.config, 4, 4, around)
    assert any(each.numeric for each in changes(now.setup, 4, 4, 8, around.costs.half))
    found = faster(case, now, around, known=True)
    assert found
    assert not any(each.change.numeric for each in found)


def test_an_advice_before_a_run_gains_about_what_was_measured() -> None:
    gains: list[tuple[float, float]] = []
    for fabric, name in MEASURED:
        case, steps = case_of(fabric, name), measured_steps(fabric)
        best = foresee(case, 1, DEVICE).best
        then = steps.get(key(changed(case.config, best.change))) if best is not None else None
        if best is not None and then is not None:
            gains.append((best.gain or 0, steps[key(dict(case.config))] / then))
    assert len(gains) >= 5
    assert all(foretold == pytest.approx(real, rel=0.15) for foretold, real in gains)
