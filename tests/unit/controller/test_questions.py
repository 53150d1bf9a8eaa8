"""What a question comes to when its answer cannot be given."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from deepspeed_operator.controller import questions, verdicts
from deepspeed_operator.controller.cache import JobCache, PodCache
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.judges import Judges
from deepspeed_operator.controller.memory import JobMemory
from deepspeed_operator.controller.questions import Questions, corrected_plan, foreseen_plan
from deepspeed_operator.controller.quotas import Quotas
from deepspeed_operator.controller.run_counts import RunCounts
from deepspeed_operator.controller.tokens import Tokens
from deepspeed_operator.controller.workloads import Workloads
from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from deepspeed_operator.job.data_sheets import USUAL
from deepspeed_operator.job.digest import config_digest
from deepspeed_operator.plan.memory.case import Case
from deepspeed_operator.plan.model.architecture import declared
from deepspeed_operator.plan.time.measured import Measured
from deepspeed_operator.reconcile.actions import CorrectPlan, ForeseePlan, ReadConfigMap
from tests.unit.controller.test_judges import drive
from tests.unit.reconcile.simulation import INSTALLATION, job

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


def test_a_text_that_has_not_changed_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, parsed = iter(['{"a": 1}', '{"a": 1}', '{"a": 2}', '{"a": 2}']), list[str]()

    async def read(*_: object, **__: object) -> dict[str, Any]:
        return {"data": {"config": next(texts)}}

    async def test(judges: Judges) -> None:
        call = judges.call

        async def counted(namespace: str, function: Callable[[str], str], text: str) -> str:
            parsed.append(text)
            return await call(namespace, function, text)

        monkeypatch.setattr(questions, "read", read)
        monkeypatch.setattr(judges, "call", counted)
        client, jobs, pods = cast("Client", None), JobCache(lambda _: None), PodCache(lambda _: None)
        asked = Questions(
            client,
            jobs,
            pods,
            judges,
            run_counts=cast("RunCounts", None),
            quotas=Quotas(client),
            workloads=cast("Workloads", None),
            installation=INSTALLATION,
            tokens=Tokens(),
        )
        memory = JobMemory("job-1")
        for value in (1, 1, 2, 2):
            await asked.answer(job(), memory, ReadConfigMap("config", "config"))
            assert memory.facts.config_maps["config"].config_digest == config_digest({"a": value})
            memory.facts = memory.facts.without_texts()
        await asked.close()

    drive(test)
    assert parsed == ['{"a": 1}', '{"a": 2}']
