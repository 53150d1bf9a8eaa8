"""What a question comes to when its answer cannot be given."""

import asyncio

from deepspeed_operator.controller.questions import corrected_plan
from deepspeed_operator.dsconfig.parallelism import Parallelism
from deepspeed_operator.plan.jobs import Case
from deepspeed_operator.plan.measured import Measured
from deepspeed_operator.plan.model import declared
from deepspeed_operator.reconcile.actions import CorrectPlan

MEASURED = Measured(steps=20, step_seconds=1.0, micro_batch=1, accumulation=1, stage=2, precision="bf16")


def test_a_defect_of_the_planner_keeps_no_job_from_its_end() -> None:
    case = Case({}, declared(1), 1, 1, 2, version="no version at all", parallelism=Parallelism())
    found = asyncio.run(corrected_plan(CorrectPlan(1, case, 1, MEASURED)))
    assert found.measured == MEASURED
    assert found.remarks == ("the planner failed: FileNotFoundError",)
