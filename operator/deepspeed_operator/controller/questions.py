"""Answering the reconciler's questions."""

import asyncio
import json
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import aiohttp

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.controller.cache import PodCache
from deepspeed_operator.controller.children import read
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.clock import now
from deepspeed_operator.controller.memory import JobMemory
from deepspeed_operator.controller.nodes import NodeLabels
from deepspeed_operator.controller.resources import CONFIG_MAPS, PODS
from deepspeed_operator.controller.trials import Trials
from deepspeed_operator.plan.foresight import Foreseen, foreseen
from deepspeed_operator.plan.recalibration import Corrected, corrected
from deepspeed_operator.reconcile.actions import (
    ConfirmMissing,
    CorrectPlan,
    FindGpus,
    ForeseePlan,
    Question,
    ReadAgent,
    ReadConfigMap,
    TryPod,
)
from deepspeed_operator.reconcile.agent import report_of
from deepspeed_operator.reconcile.observed import AgentReport, ConfigMapContent, CorrectedPlan, ForeseenPlan, FoundGpus
from deepspeed_operator.reconcile.pods import pod_view

AGENT_SECONDS = 2.0
AGENTS_AT_A_TIME = 32
AGENT_BYTES = 1 << 20

_log = logging.getLogger(__name__)


class Questions:
    """Fills a job's facts."""

    def __init__(self, client: Client, pods: PodCache) -> None:
        self._client = client
        self._pods = pods
        self._trials = Trials(client)
        self._nodes = NodeLabels(client)
        self._agents = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=AGENTS_AT_A_TIME, force_close=True),
            timeout=aiohttp.ClientTimeout(total=AGENT_SECONDS),
        )

    async def close(self) -> None:
        await self._agents.close()

    async def answer(self, job: DeepSpeedJob, memory: JobMemory, question: Question) -> None:
        """Put the answer into the job's facts."""
        match question:
            case ReadConfigMap(name):
                live = await read(self._client, CONFIG_MAPS, job.metadata.namespace, name)
                data = None if live is None else cast("dict[str, str]", live.get("data", {}))
                known = {**memory.facts.config_maps, name: ConfigMapContent(data, now())}
                memory.facts = replace(memory.facts, config_maps=known)
            case TryPod():
                memory.facts = replace(memory.facts, trial=await self._trials.ask(job.metadata.namespace, question))
            case FindGpus(wanted):
                kinds = wanted.kinds(await self._nodes.all())
                memory.facts = replace(memory.facts, gpus=FoundGpus(wanted, kinds, now()))
            case ReadAgent(attempt, address, port, early):
                before = memory.facts.agent
                report = await self._read_agent(job, attempt, address, port)
                if report is None:
                    report = AgentReport(attempt, now(), silent=before.silent + 1 if before is not None else 1)
                memory.facts = replace(memory.facts, agent=replace(report, early=early))
            case CorrectPlan(attempt):
                found = CorrectedPlan(attempt, await corrected_plan(question))
                memory.facts = replace(memory.facts, corrected=found)
            case ForeseePlan():
                memory.facts = replace(memory.facts, foreseen=ForeseenPlan(question, await foreseen_plan(question)))
            case ConfirmMissing(pods):
                missing = await self._confirm_missing(job, pods)
                memory.facts = replace(memory.facts, confirmed_missing=memory.facts.confirmed_missing | missing)

    async def _read_agent(self, job: DeepSpeedJob, attempt: int, address: str, port: int) -> AgentReport | None:
        host = f"[{address}]" if ":" in address else address
        try:
            async with self._agents.get(f"http://{host}:{port}/state") as response:
                state: Any = json.loads(await whole(response.content))
            return report_of(state, job.metadata.uid, attempt, now())
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError):
            return None  # no answer is an answer: what it would have told is not essential

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


async def whole(content: aiohttp.StreamReader) -> bytes:
    """Read to the end, however many pieces it comes in; ValueError if it is none."""
    data = b""
    async for piece in content.iter_any():
        data += piece
        if len(data) > AGENT_BYTES:
            raise ValueError("more than any agent says")
    return data


async def corrected_plan(asked: CorrectPlan) -> Corrected:
    """In another thread: a look at some dozens of alternatives may take a second."""
    try:
        return await asyncio.to_thread(corrected, asked.case, asked.nodes, asked.measured, asked.preflight)
    except Exception as error:
        # A job must come to its end whatever the planner thinks of it.
        _log.exception("The plan could not be corrected")
        return Corrected(asked.measured, remarks=(f"the planner failed: {type(error).__name__}",))


async def foreseen_plan(asked: ForeseePlan) -> Foreseen | None:
    """Likewise in another thread; None if the planner failed: a job begins without its word."""
    try:
        return await asyncio.to_thread(foreseen, asked.case, asked.nodes, asked.device, asked.preflight)
    except Exception:
        _log.exception("A job's plan could not be made")
        return None
