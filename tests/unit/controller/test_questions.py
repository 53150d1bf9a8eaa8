"""What a question comes to when its answer cannot be given."""

from deepspeed_operator.controller import verdicts
from deepspeed_operator.controller.judges import Judges
from deepspeed_operator.controller.questions import corrected_plan, foreseen_plan
from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from deepspeed_operator.job.data_sheets import USUAL
from deepspeed_operator.plan.memory.case import Case
from deepspeed_operator.plan.model.architecture import declared
from deepspeed_operator.plan.time.measured import Measured
from deepspeed_operator.reconcile.actions import CorrectPlan, ForeseePlan
from tests.unit.controller.test_judges import drive
from tests.unit.reconcile.simulation import job

MEASURED = Measured(steps=20, step_seconds=1.0, micro_batch=1, accumulation=1, stage=2, precision="bf16")


def test_a_defect_of_the_planner_keeps_no_job_from_its_beginning_or_end() -> None:
    case = Case({}, declared(1), 1, 1, 2, version="no version at all", parallelism=ParallelDegrees())

    async def test(judges: Judges) -> None:
        found = await corrected_plan(judges, job(), CorrectPlan(1, case, 1, MEASURED))
        assert found.measured == MEASURED
        assert found.remarks == ("the planner failed: FileNotFoundError",)
        assert await foreseen_plan(judges, job(), ForeseePlan(case, 1, USUAL)) is None

    drive(test)
    assert verdicts.foreseen_plan(ForeseePlan(case, 1, USUAL)) is None
