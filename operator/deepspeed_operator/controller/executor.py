"""One reconcile of one job: what is known → reconcile() → status, events and actions, in this order."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import cast

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import API_VERSION, KIND, TOKEN_FILE
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import DeepSpeedJobStatus
from deepspeed_operator.controller.bodies import is_unread
from deepspeed_operator.controller.cache import JobCache, JobRecord, PodCache, job_key, job_version
from deepspeed_operator.controller.children import (
    NamespaceTerminatingError,
    RefusedError,
    TryAgainSoonError,
    ensure,
    ensure_secret,
    remove_config_map,
    remove_names,
)
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.clock import now
from deepspeed_operator.controller.creation import JobChangedError, PodCreation
from deepspeed_operator.controller.deletion import delete_pods
from deepspeed_operator.controller.ended_runs import EndedRuns
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.events import EventRecorder
from deepspeed_operator.controller.fairness import Pace
from deepspeed_operator.controller.job_metrics import note_written
from deepspeed_operator.controller.jobs import JobReader
from deepspeed_operator.controller.leader import Leadership, NotLeadingError
from deepspeed_operator.controller.logs import words_of
from deepspeed_operator.controller.marker import Marker
from deepspeed_operator.controller.memory import JobMemory
from deepspeed_operator.controller.metrics import DECIDE_SECONDS, RECONCILE_SECONDS, STATUS_PRUNED
from deepspeed_operator.controller.questions import Questions
from deepspeed_operator.controller.queue import Key, WorkQueue
from deepspeed_operator.controller.quotas import Quotas
from deepspeed_operator.controller.resources import JOBS, Json
from deepspeed_operator.controller.settling import Settling
from deepspeed_operator.controller.tokens import Tokens
from deepspeed_operator.controller.workloads import Workloads
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.reconcile.actions import (
    Action,
    CreatePods,
    CreateWorkload,
    DeleteChildren,
    DeleteConfigMaps,
    DeletePod,
    DeleteWorkload,
    Ensure,
    EnsureToken,
    GiveBack,
    JobEvent,
    MarkEndedRun,
    Outcome,
    PatchWorkload,
)
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.reconciler import reconcile

SOON = 1.0
RESYNC = 600.0
# Whatever is due at once comes by the echo of what was just written; a mistaken date must not keep a core busy.
AT_LEAST = 0.1

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Executor:
    """Brings jobs one step further, one call a job at a time."""

    client: Client
    jobs: JobCache
    reader: JobReader
    pods: PodCache
    queue: WorkQueue
    events: EventRecorder
    leadership: Leadership
    questions: Questions
    quotas: Quotas
    creation: PodCreation
    marker: Marker
    installation: Installation
    tokens: Tokens
    workloads: Workloads
    ended_runs: EndedRuns
    _memories: dict[Key, JobMemory] = field(default_factory=dict[Key, JobMemory])
    _pace: Pace = field(default_factory=Pace)
    _pruned_noted: bool = False

    async def work(self, key: Key) -> None:
        """Reconcile the job until there is nothing left to do now."""
        try:
            with RECONCILE_SECONDS.time():
                await self._until_settled(key)
        finally:
            self.jobs.forget_computed(key)
            if (memory := self._memories.get(key)) is not None:
                memory.facts = memory.facts.without_texts()

    async def _until_settled(self, key: Key) -> None:
        settling = Settling()
        while (record := await self._in_turn(key)) is not None:
            if record.leaving:  # garbage collection ends its children
                return
            job = await self.reader.whole(key)
            if job is None or not await self._guarded(job, settling):
                return
        # All that this process remembers of a job by its key goes with it.
        self._memories.pop(key, None)
        self.reader.forget(key)
        self.queue.forget(key)

    async def _in_turn(self, key: Key) -> JobRecord | None:
        """Return what is known of the job when its namespace has rested; None if it has gone."""
        await self._pace.rested(key[0])
        return self.jobs.get(key)

    async def _guarded(self, job: DeepSpeedJob, settling: Settling) -> bool:
        """Make one pass; whether another is due at once."""
        memory = self._memory(job)
        if memory.namespace_terminating:
            return False
        try:
            memory.facts = replace(memory.facts, aside=self.marker.aside(job.metadata.uid))
            if is_unread(job) and memory.facts.aside is None:
                return True  # it is read now
            return await self._pass(job, memory, settling)
        except JobChangedError:
            pass  # what the cache knows now has put the job back into the queue
        except TryAgainSoonError as obstacle:
            _log.info("%s/%s waits: %s", job.metadata.namespace, job.metadata.name, obstacle)
            self.queue.add_after(job_key(job), SOON)
        except NamespaceTerminatingError:
            memory.namespace_terminating = True
        except NotLeadingError as error:
            # The process is about to end; whoever leads next does the rest.
            _log.warning("%s/%s is left: %s", job.metadata.namespace, job.metadata.name, error)
        except Exception as error:
            message = f"The operator could not go on and tries again: {type(error).__name__}{words_of(error)}"
            message += ". If this stays, its log says where it comes from."
            # Events last an hour: what stays is told once in each.
            occurrence = f"{job.metadata.generation} {now():%Y-%m-%d %H}"
            self.events.record(job, [JobEvent("Warning", Reason.RECONCILE_ERROR, message)], occurrence)
            raise
        return False

    async def _pass(self, job: DeepSpeedJob, memory: JobMemory, settling: Settling) -> bool:
        self.leadership.check()
        job = memory.whole(job)
        self._tell(job, memory)
        outcome = self._decide(job, memory)
        begun = outcome.status.attempt_number != job.status.attempt_number
        if outcome.status != job.status:
            memory.untold = outcome
            before = job.status
            job = await self._write_status(job, memory, outcome.status)
            note_written(before, outcome.status, outcome.events)
        self._tell(job, memory)
        if self._superseded(job):
            return False  # what came after our write has put the job back into the queue
        questions = outcome.questions
        for _, group in groupby(outcome.actions, type):
            if not await self._do(job, memory, list(group)):
                return True
        if questions:
            settling.check(questions, job.metadata.generation)
            await self.questions.answer_all(job, memory, questions)
            settling.answered(questions)
        # What was begun goes on before other jobs' turn, while what was written is known to be true.
        return begun or bool(questions)

    def _tell(self, job: DeepSpeedJob, memory: JobMemory) -> None:
        """Tell what the job's status, as it is written, is news of."""
        outcome, memory.untold = memory.untold, None
        if outcome is not None and outcome.status == job.status:
            self.events.record(job, outcome.events, job.metadata.resource_version)

    def _decide(self, job: DeepSpeedJob, memory: JobMemory) -> Outcome:
        moment = now()
        metadata = job.metadata
        with DECIDE_SECONDS.time(), self._pace.timed(metadata.namespace), self.marker.on(metadata.uid):
            pods = self.pods.of_job(job_key(job))
            workload, watched = self.workloads.of_job(job), self.workloads.watched
            observed = Observed(job, pods, memory.facts, moment, workload, watched)
            outcome = reconcile(observed, self.installation)
        # Changes call for the next look; a wrong belief that none is to come must not last.
        due = RESYNC if outcome.check_at is None else (outcome.check_at - moment).total_seconds()
        self.queue.add_after(job_key(job), max(due, AT_LEAST))
        return outcome

    async def _write_status(self, job: DeepSpeedJob, memory: JobMemory, status: DeepSpeedJobStatus) -> DeepSpeedJob:
        metadata = job.metadata
        body: Json = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
            },
            "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        try:
            written = await self.client.replace(JOBS, metadata.namespace, body, "status")
        except ApiError as error:
            if error.status in {404, 409}:
                await self.creation.confirm(job)
                raise TryAgainSoonError("its status could not be written") from error
            raise
        if status.attempt_number != job.status.attempt_number:
            memory.begin(status.attempt_number)
        memory.facts = replace(memory.facts, status_written_at=now())
        result = self.reader.take(written)
        if result is None:
            raise JobChangedError
        memory.written = memory.kept = None
        if result.status != status:
            memory.written, memory.kept = status, result.status
            self._note_pruned(body["status"], written.get("status", {}))
        memory.note_written(result)
        return memory.whole(result)

    def _superseded(self, job: DeepSpeedJob) -> bool:
        """Whether the watch has told, before our write was answered, what came after it: a change, or the job's end."""
        current = self.jobs.get(job_key(job))
        return current is None or current.version > job_version(job)

    def _note_pruned(self, sent: Json, kept: Json) -> None:
        STATUS_PRUNED.inc()
        if not self._pruned_noted:
            lost = ", ".join(sorted(field for field, value in sent.items() if kept.get(field) != value))
            _log.warning(
                "The CRD is older than this operator, apply the newer one: the API server drops status.%s", lost
            )
            self._pruned_noted = True

    async def _do(self, job: DeepSpeedJob, memory: JobMemory, actions: Sequence[Action]) -> bool:
        """Do actions of one kind; False if one was refused, which the facts say now."""
        try:
            if isinstance(actions[0], DeletePod):
                await delete_pods(self.client, self.pods, job, cast("Sequence[DeletePod]", actions))
                return True
            for action in actions:
                await self._do_one(job, memory, action)
        except RefusedError as error:
            reason = Reason.NAME_CONFLICT if error.name_taken else Reason.PODS_REFUSED
            refusal = memory.refusal(job.status.attempt_number, reason, error.message)
            memory.facts = replace(memory.facts, refusal=refusal)
            return False
        return True

    async def _do_one(self, job: DeepSpeedJob, memory: JobMemory, action: Action) -> None:
        match action:
            case Ensure(manifest, doubted):
                await ensure(self.client, job, memory, manifest, doubted=doubted)
            case EnsureToken(manifest, attempt):
                data = {TOKEN_FILE: self.tokens.of(job.metadata.uid, attempt)}
                await ensure_secret(self.client, job, memory, {**manifest, "stringData": data})
            case CreatePods(_, pods):
                memory.facts = replace(memory.facts, refusal=None)
                lacking = await self.quotas.shortfall(job.metadata.namespace, pods[0], len(pods))
                if lacking is not None:
                    raise RefusedError(lacking)
                await self.creation.create(job, pods, confirmed=memory.just_written(job))
                memory.refusals = 0
                created = {pod["metadata"]["name"] for pod in pods}
                memory.facts = replace(memory.facts, confirmed_missing=memory.facts.confirmed_missing - created)
            case GiveBack(attempt, message):
                refusal = memory.refusal(attempt, Reason.GANG_GIVEN_BACK, message)
                memory.facts = replace(memory.facts, refusal=refusal)
            case CreateWorkload() | PatchWorkload() | DeleteWorkload():
                memory.facts = replace(memory.facts, workload=await self.workloads.do(job, action))
            case DeleteConfigMaps(attempt, names, gangs):
                for name in names:
                    if (refusal := await remove_config_map(self.client, job, name, gangs)) is not None:
                        _log.warning("ConfigMap %s/%s goes with its job: %s", job.metadata.namespace, name, refusal)
                memory.facts = replace(memory.facts, oldest_config_map=attempt)
            case DeleteChildren():
                await self._delete_children(job, memory, action)
            case MarkEndedRun(text):
                await self.ended_runs.mark(job, text)
            case _:
                raise TypeError(f"not an action to do one by one: {action}")

    async def _delete_children(self, job: DeepSpeedJob, memory: JobMemory, action: DeleteChildren) -> None:
        memory.ensured.clear()
        refusals = [await remove_config_map(self.client, job, name, action.gangs) for name in action.config_maps]
        await remove_names(self.client, job, action.service, action.slices)
        if (refusal := next(filter(None, refusals), None)) is not None:
            memory.facts = replace(memory.facts, kept_children=memory.kept_children(action.attempt, refusal))
        else:
            memory.facts = replace(memory.facts, oldest_config_map=action.attempt + 1, childless=action.attempt)

    def _memory(self, job: DeepSpeedJob) -> JobMemory:
        key = job_key(job)
        memory = self._memories.get(key)
        if memory is None or memory.uid != job.metadata.uid:
            memory = self._memories[key] = JobMemory(job.metadata.uid)
        return memory
