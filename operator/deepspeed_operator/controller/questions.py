"""Answering the reconciler's questions."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.controller.agents import Agents
from deepspeed_operator.controller.cache import JobCache, PodCache, job_key
from deepspeed_operator.controller.children import read
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.clock import now
from deepspeed_operator.controller.dry_runs import DryRuns
from deepspeed_operator.controller.half_gangs import HalfGangFinder
from deepspeed_operator.controller.judges import ExceededError, FailedError, Judges
from deepspeed_operator.controller.memory import JobMemory
from deepspeed_operator.controller.nodes import NodeLabels
from deepspeed_operator.controller.quotas import Quotas
from deepspeed_operator.controller.resources import CONFIG_MAPS, PODS
from deepspeed_operator.controller.run_counts import RunCounts
from deepspeed_operator.controller.tokens import Tokens
from deepspeed_operator.controller.verdicts import Verdicts
from deepspeed_operator.controller.workloads import Workloads
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.plan.advice.forecast import Foreseen, foresee
from deepspeed_operator.plan.advice.recalibration import Corrected, correct_plan
from deepspeed_operator.reconcile.actions import (
    ConfirmMissing,
    CorrectPlan,
    CountRuns,
    DryRunPod,
    FindGpus,
    FindHalfGangs,
    ForeseePlan,
    JudgeRun,
    Question,
    ReadAgent,
    ReadConfigMap,
    ReadOfQueue,
    ReadWorkload,
)
from deepspeed_operator.reconcile.admission.configuration import digest_of
from deepspeed_operator.reconcile.observe.observed import (
    AgentReport,
    CorrectedPlan,
    ForeseenPlan,
    FoundGpus,
    content_of,
)
from deepspeed_operator.reconcile.observe.pods import pod_view


class Questions:
    """Fills a job's facts."""

    def __init__(
        self,
        client: Client,
        jobs: JobCache,
        pods: PodCache,
        judges: Judges,
        *,
        run_counts: RunCounts,
        quotas: Quotas,
        installation: Installation,
        tokens: Tokens,
        workloads: Workloads,
    ) -> None:
        self._client = client
        self._workloads = workloads
        self._pods = pods
        self._judges = judges
        self._verdicts = Verdicts(judges, installation)
        self._dry_runs = DryRuns(client, quotas)
        self._nodes = NodeLabels(client)
        self._agents = Agents(tokens)
        self._half_gangs = HalfGangFinder(jobs, pods)
        self._run_counts = run_counts

    async def close(self) -> None:
        await self._agents.close()

    async def answer_all(self, job: DeepSpeedJob, memory: JobMemory, questions: Iterable[Question[object]]) -> None:
        """Put the answers into the job's facts, or raise what came in the way of the first."""
        answers = (self.answer(job, memory, each) for each in questions)
        for failure in await asyncio.gather(*answers, return_exceptions=True):
            if failure is not None:
                raise failure

    async def answer(  # noqa: PLR0912 -- one branch a question
        self, job: DeepSpeedJob, memory: JobMemory, question: Question[object]
    ) -> None:
        """Put the answer into the job's facts, in one step once it is there: others are answered meanwhile."""
        match question:
            case ReadConfigMap(name, key):
                exists_only = key is None
                live = await read(self._client, CONFIG_MAPS, job.metadata.namespace, name, metadata=exists_only)
                data = None if live is None else cast("dict[str, str]", live.get("data", {}))
                content, before = content_of(data, key, now()), memory.facts.config_maps.get(name)
                if content.text is not None:
                    digest = before.config_digest if before is not None and before.digest == content.digest else None
                    digest = digest or await self._config_digest(job.metadata.namespace, content.text)
                    content = replace(content, config_digest=digest)
                known = {**memory.facts.config_maps, name: content}
                memory.facts = replace(memory.facts, config_maps=known)
            case JudgeRun():
                answer = await self._verdicts.of(job.metadata.namespace, question)
                memory.facts = replace(memory.facts, judged=answer)
            case DryRunPod():
                answer = await self._dry_runs.ask(job.metadata.namespace, question)
                memory.facts = replace(memory.facts, dry_run=answer)
            case FindGpus(request):
                kinds = request.kinds(await self._nodes.all())
                memory.facts = replace(memory.facts, gpus=FoundGpus(request, kinds, now()))
            case CountRuns():
                memory.facts = replace(memory.facts, runs=await self._run_counts.count(job_key(job), question))
            case FindHalfGangs():
                memory.facts = replace(memory.facts, half_gangs=self._half_gangs.find())
            case ReadAgent(attempt):
                before = memory.facts.agent
                report = await self._agents.read(job, question)
                if report is None:
                    report = AgentReport(attempt, now(), silent=before.silent + 1 if before is not None else 1)
                memory.facts = replace(memory.facts, agent=replace(report, early=question.early))
            case CorrectPlan(attempt):
                found = CorrectedPlan(attempt, await corrected_plan(self._judges, job, question))
                memory.facts = replace(memory.facts, corrected=found)
            case ForeseePlan():
                plan = await foreseen_plan(self._judges, job, question)
                memory.facts = replace(memory.facts, foreseen=ForeseenPlan(question, plan))
            case ReadWorkload(name):
                known = await self._workloads.read(job, name)
                memory.facts = replace(memory.facts, workload=known)
            case ReadOfQueue(kind, name):
                found = await self._workloads.look_up(question)
                of_queue = {**memory.facts.of_queue, (kind, name): found}
                memory.facts = replace(memory.facts, of_queue=of_queue)
            case ConfirmMissing(pods):
                missing = await self._confirm_missing(job, pods)
                memory.facts = replace(memory.facts, confirmed_missing=memory.facts.confirmed_missing | missing)
            case _:
                raise TypeError(f"nobody answers {type(question).__name__}")

    async def _config_digest(self, namespace: str, text: str) -> str | None:
        try:
            return await self._judges.call(namespace, digest_of, text)
        except (ExceededError, FailedError):
            return None  # judging the run says why

    async def _confirm_missing(self, job: DeepSpeedJob, names: Iterable[str]) -> frozenset[str]:
        namespace = job.metadata.namespace

        async def missing(name: str) -> bool:
            live = await read(self._client, PODS, namespace, name)
            if live is not None:
                self._pods.put(pod_view(live, now()))
            return live is None

        listed = tuple(names)
        absent = await asyncio.gather(*(missing(name) for name in listed))
        return frozenset(name for name, gone in zip(listed, absent, strict=True) if gone)


async def corrected_plan(judges: Judges, job: DeepSpeedJob, question: CorrectPlan) -> Corrected:
    """Return the plan beside what was measured: a look at some dozens of alternatives may take a second."""
    try:
        return await judges.call(
            job.metadata.namespace, correct_plan, question.case, question.nodes, question.measured, question.preflight
        )
    except (ExceededError, FailedError) as error:
        # A job must come to its end whatever the planner thinks of it.
        return Corrected(question.measured, remarks=(f"the planner failed: {error}",))


async def foreseen_plan(judges: Judges, job: DeepSpeedJob, question: ForeseePlan) -> Foreseen | None:
    """Return what a job will be like; None if the planner failed: it goes on without its word."""
    try:
        return await judges.call(
            job.metadata.namespace, foresee, question.case, question.nodes, question.device, question.preflight
        )
    except (ExceededError, FailedError):
        return None
