"""Drives the pure reconcile function against a remembered cluster, as the controller does against a real one."""

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from deepspeed_operator.api.attempt_status import AttemptStatus
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import ANNOTATION_ENDED_RUN, pod_name
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Condition, ConditionType, Run, State
from deepspeed_operator.job.accelerators import NVIDIA_GPU
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.job.node_selection import LabelledNode
from deepspeed_operator.plan.advice.forecast import Foreseen, foresee
from deepspeed_operator.plan.advice.recalibration import correct_plan
from deepspeed_operator.reconcile.actions import (
    Action,
    ConfirmMissing,
    CorrectPlan,
    CreatePods,
    CreateWorkload,
    DeleteChildren,
    DeleteConfigMaps,
    DeletePod,
    DeleteWorkload,
    DryRunPod,
    Ensure,
    EnsureToken,
    FindGpus,
    FindHalfGangs,
    ForeseePlan,
    GiveBack,
    JobEvent,
    JudgeRun,
    MarkEndedRun,
    Outcome,
    PatchWorkload,
    Question,
    ReadAgent,
    ReadConfigMap,
    ReadOfQueue,
    ReadWorkload,
)
from deepspeed_operator.reconcile.admission.configuration import digest_of
from deepspeed_operator.reconcile.admission.question import judge_run
from deepspeed_operator.reconcile.observe.half_gang import HalfGang
from deepspeed_operator.reconcile.observe.observed import (
    AgentReport,
    CorrectedPlan,
    DryRunResult,
    Facts,
    ForeseenPlan,
    FoundGpus,
    HalfGangs,
    JudgedRun,
    KeptChildren,
    Observed,
    Refusal,
    SetAside,
    content_of,
)
from deepspeed_operator.reconcile.observe.pods import PodView, Termination, pod_view
from deepspeed_operator.reconcile.observe.workload_view import Lookup, WorkloadAnswer, workload_view
from deepspeed_operator.reconcile.reconciler import reconcile
from deepspeed_operator.reconcile.report.conditions import condition
from tests.unit.reconcile.processes import sent

INSTALLATION = Installation("UEsFBg==", "worker:1", "0.19.8", worker_accelerator=NVIDIA_GPU)
GRACE = timedelta(seconds=30)
CONFIG = {"train_batch_size": 24, "train_micro_batch_size_per_gpu": 2}


def job(**spec: Any) -> DeepSpeedJob:
    """A job that its first failure ends, unless its failurePolicy says otherwise."""
    program = {"nodes": 2, "training": {"script": "train.py"}, "dsConfig": CONFIG}
    given: dict[str, Any] = {**program, "failurePolicy": {"maxInfrastructureRestarts": 0}, **spec}
    return DeepSpeedJob.model_validate(
        {
            "metadata": {"name": "pretrain", "namespace": "ml", "uid": "job-1", "generation": 1},
            "spec": {key: value for key, value in given.items() if value is not None},
        }
    )


@dataclass
class Simulation:
    """One job and what exists of it. `step` reconciles once and does what the outcome asks for."""

    job: DeepSpeedJob
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    pods: dict[str, PodView] = field(default_factory=dict[str, PodView])
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict[tuple[str, str], dict[str, Any]])
    ensured: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict[tuple[str, str], dict[str, Any]])
    config_maps: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    facts: Facts = field(default_factory=Facts)
    events: list[JobEvent] = field(default_factory=list[JobEvent])
    writes: list[str] = field(default_factory=list[str])
    trial_refusal: tuple[str, bool] | None = None
    trial_quota: bool = False
    tried: list[DryRunPod] = field(default_factory=list[DryRunPod])
    refuse_pods: str | None = None
    undeletable: str | None = None  # why no ConfigMap may be deleted
    agent: AgentReport | None = None
    reads: list[datetime] = field(default_factory=list[datetime])
    config_map_reads: list[datetime] = field(default_factory=list[datetime])
    nodes: list[LabelledNode] | None = None  # None: the installation may not read them
    node_reads: int = 0
    corrections: int = 0
    foresights: int = 0
    deletions_refused: int = 0
    judgements: int = 0
    created: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])  # pods, as they were posted
    half_gangs: list[HalfGang] = field(default_factory=list[HalfGang])  # of other jobs
    workloads: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    watched: bool = True  # whether a watch tells of them
    queue_problem: str | None = None
    queue_refuses: str | None = None  # writes alone, such as by a webhook that is away
    of_queue: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict[tuple[str, str], dict[str, Any]])
    set_aside: SetAside | None = None  # what comes of judging the job
    installation: Installation = INSTALLATION

    def outcome(self) -> Outcome:
        return self._reconcile(self.job)

    def _reconcile(self, job: DeepSpeedJob) -> Outcome:
        installation = replace(self.installation, reads_nodes=self.nodes is not None)
        queue = job.status.queue
        found = self.workloads.get(queue.held_workload or "") if self.watched and queue is not None else None
        view = workload_view(found) if found is not None and self.queue_problem is None else None
        view = view if view is None or view.job == job.metadata.name else None  # the watch tells each job of its own
        pods, watched = tuple(self.pods.values()), self.watched and self.queue_problem is None
        return reconcile(Observed(job, pods, self.facts, self.now, view, watched), installation)

    def step(self) -> Outcome:
        outcome = self.outcome()
        self._decides_upon_no_condition(outcome)
        if outcome.status != self.job.status:
            self.job = self.job.model_copy(update={"status": outcome.status})
            self.facts = replace(self.facts, status_written_at=self.now)
            self.events += outcome.events
            self.writes.append("status")
        for action in outcome.actions:
            self._do(action)
        for question in outcome.questions:
            self._answer(question)
        return outcome

    def _decides_upon_no_condition(self, outcome: Outcome) -> None:
        """Assert that the same is decided whatever was said."""
        lost = {"status": "Unknown", "reason": "Lost", "message": ""}
        conditions = [each.model_copy(update=lost) for each in self.job.status.conditions]
        unsaid = self.job.status.model_copy(update={"conditions": conditions, "state": None})
        other = self._reconcile(self.job.model_copy(update={"status": unsaid}))
        asked = [
            [each.digest if isinstance(each, JudgeRun) else each for each in o.questions] for o in (other, outcome)
        ]
        assert (other.actions, asked[0]) == (outcome.actions, asked[1])
        fields = {"run", "attempt", "attempts", "failure", "findings"}
        assert other.status.model_dump(include=fields) == outcome.status.model_dump(include=fields)

    def settle(self) -> Outcome:
        """Step until nothing more happens without news from outside, then assert that another pass writes nothing."""
        for _ in range(20):
            writes, facts = len(self.writes), self.facts
            outcome = self.step()
            if len(self.writes) == writes and self.facts == facts:
                self.facts = self.facts.without_texts()
                return outcome
        raise AssertionError(f"no fixpoint; last writes: {self.writes[-10:]}")

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def edit(self, **spec: Any) -> None:
        """Change the spec as a user does; the generation grows."""
        changed = {**self.job.spec.model_dump(by_alias=True, exclude_unset=True), **spec}
        metadata = self.job.metadata.model_copy(update={"generation": self.job.metadata.generation + 1})
        self.job = self.job.model_copy(
            update={"spec": type(self.job.spec).model_validate(changed), "metadata": metadata}
        )

    @property
    def run(self) -> Run:
        assert self.job.status.run is not None
        return self.job.status.run

    @property
    def attempt(self) -> AttemptStatus:
        assert self.job.status.attempt is not None
        return self.job.status.attempt

    def pod(self, index: int, attempt: int | None = None) -> PodView:
        replacement = self.attempt.latest_replacements.get(index) if attempt is None else None
        number = replacement.number if replacement is not None else 0
        return self.pods[pod_name("pretrain", attempt or self.attempt.number, index, number)]

    def change(self, index: int, **fields: Any) -> None:
        pod = self.pod(index)
        changed = replace(pod, resource_version=f"{pod.resource_version}+", since=self.now, **fields)
        self.pods[pod.name] = changed.after(pod)

    def run_all(self) -> None:
        """All pods get a node and an address, start and become ready."""
        for pod in list(self.pods.values()):
            if pod.attempt == self.attempt.number:
                started = {"node": f"node{pod.index}", "address": f"10.0.0.{pod.index + 1}"}
                self.change(pod.index, phase="Running", ready=True, **started)

    def train(self) -> Self:
        """The job begins, all its pods run, and it says so."""
        self.settle()
        self.run_all()
        self.settle()
        assert self.job.status.state is State.RUNNING
        return self

    def end(
        self, index: int, exit_code: int = 0, message: str = "", reason: str = "", *, ahead: float = 0, **fields: Any
    ) -> None:
        """The trainer of a pod ends, and with it the pod; the clock of its node is so many seconds ahead."""
        then = self.now + timedelta(seconds=ahead)
        ended = Termination(exit_code, None, reason or ("Error" if exit_code else "Completed"), message, then)
        phase = "Failed" if exit_code else "Succeeded"
        self.change(index, **{"phase": phase, "ready": False, "termination": ended, **fields})

    def condition(self, kind: ConditionType) -> Condition:
        found = condition(self.job.status, kind)
        assert found is not None
        return found

    def _answer(self, question: Question[object]) -> None:  # noqa: PLR0912 -- one branch a question
        match question:
            case ReadConfigMap(name, key):
                self.config_map_reads.append(self.now)
                content = content_of(self.config_maps.get(name), key, self.now)
                if content.text is not None:
                    content = replace(content, config_digest=digest_of(content.text))
                self.facts = replace(self.facts, config_maps={**self.facts.config_maps, name: content})
            case FindGpus(request):
                self.node_reads += 1
                self.facts = replace(self.facts, gpus=FoundGpus(request, request.kinds(self.nodes or ()), self.now))
            case JudgeRun(observed, digest):
                self.judgements += 1
                installation = replace(self.installation, reads_nodes=self.nodes is not None)
                answer = self.set_aside or judge_run(observed, installation, self._foresee)
                self.facts = replace(self.facts, judged=JudgedRun(digest, answer))
            case DryRunPod(_, digest):
                self.tried.append(question)
                refusal, invalid = self.trial_refusal or (None, False)
                tried = DryRunResult(digest, refusal, invalid, self.now, self.trial_quota)
                self.facts = replace(self.facts, dry_run=tried)
            case ReadAgent(attempt, early=early):
                before = self.facts.agent.silent if self.facts.agent is not None else 0
                said = self.agent or AgentReport(attempt, self.now, before + 1)
                self.facts = replace(self.facts, agent=replace(said, read_at=self.now, early=early))
                self.reads.append(self.now)
            case FindHalfGangs():
                self.facts = replace(self.facts, half_gangs=HalfGangs(tuple(self.half_gangs), self.now))
            case CorrectPlan(attempt, case, nodes, measured, preflight):
                found = CorrectedPlan(attempt, sent(correct_plan(*sent((case, nodes, measured, preflight)))))
                self.facts = replace(self.facts, corrected=found)
                self.corrections += 1
            case ForeseePlan():
                self.facts = replace(self.facts, foreseen=ForeseenPlan(question, self._foresee(question)))
            case ReadWorkload(name):
                found = self.workloads.get(name) if self.queue_problem is None else None
                view = workload_view(found) if found is not None else None
                self.facts = replace(self.facts, workload=WorkloadAnswer(name, view, self.queue_problem, self.now))
            case ReadOfQueue(kind, name):
                found = self.of_queue.get((kind, name))
                lookup = Lookup(found, None if found is not None else f"{kind} {name} is not there", self.now)
                self.facts = replace(self.facts, of_queue={**self.facts.of_queue, (kind, name): lookup})
            case ConfirmMissing(names):
                missing = frozenset(name for name in names if name not in self.pods or self.pods[name].gone)
                self.facts = replace(self.facts, confirmed_missing=missing)
            case _:
                raise TypeError(f"nobody answers {question}")

    def _do(self, action: Action) -> None:  # noqa: PLR0912, PLR0915 -- one branch an action
        match action:
            case Ensure(manifest, doubted):
                key = (manifest["kind"], manifest["metadata"]["name"])
                if not doubted and self.ensured.get(key) == manifest:
                    return
                self.ensured[key] = manifest
                if self.objects.get(key) != manifest:
                    self.objects[key] = manifest
                    self.writes.append("/".join(key))
                if manifest["kind"] == "ConfigMap":
                    self.config_maps[manifest["metadata"]["name"]] = manifest["data"]
            case EnsureToken(manifest, _):
                key = ("Secret", manifest["metadata"]["name"])
                if key not in self.objects:
                    self.objects[key] = manifest
                    self.writes.append("/".join(key))
            case CreatePods(attempt, pods):
                self.facts = replace(self.facts, refusal=None)
                for manifest in pods:
                    if self.refuse_pods is not None and self.pods:
                        retry_at = self.now + timedelta(seconds=10)
                        refusal = Refusal(attempt, Reason.PODS_REFUSED, self.refuse_pods, retry_at)
                        self.facts = replace(self.facts, refusal=refusal)
                        break
                    self._create(manifest)
            case GiveBack(attempt, message):
                retry_at = self.now + timedelta(seconds=30)
                self.facts = replace(self.facts, refusal=Refusal(attempt, Reason.GANG_GIVEN_BACK, message, retry_at))
            case DeletePod(name, uid, version, forced):
                pod = self.pods[name]
                assert pod.uid == uid
                if forced:
                    self.pods[name] = pod.last_view()
                    self.writes.append(f"delete {name} by force")
                elif version in {None, pod.resource_version}:
                    self.pods[name] = replace(pod, deleted_at=self.now, grace_ends=self.now + GRACE)
                    self.writes.append(f"delete {name}")
            case CreateWorkload() | PatchWorkload() | DeleteWorkload():
                self._at_the_queue(action)
            case DeleteConfigMaps(attempt, names):
                for name in names:
                    self.objects.pop(("Secret", name), None)
                    if self.config_maps.pop(name, None) is not None:
                        self.writes.append(f"delete ConfigMap/{name}")
                self.facts = replace(self.facts, oldest_config_map=attempt)
            case DeleteChildren(attempt, config_maps, service, slices):
                names = {("Service", service), *(("EndpointSlice", name) for name in slices)}
                names |= {(kind, name) for kind in ("ConfigMap", "Secret") for name in config_maps}
                self.ensured.clear()
                if self.undeletable is not None:
                    self.deletions_refused += 1
                    kept = KeptChildren(attempt, self.undeletable, self.now + timedelta(minutes=5))
                    self.facts = replace(self.facts, kept_children=kept)
                    return
                for key in names & self.objects.keys():
                    del self.objects[key]
                    self.writes.append(f"delete {'/'.join(key)}")
                self.config_maps = {name: data for name, data in self.config_maps.items() if name not in config_maps}
                self.facts = replace(self.facts, oldest_config_map=attempt + 1, childless=attempt)
            case MarkEndedRun(text):
                annotations = {ANNOTATION_ENDED_RUN: text} if text is not None else {}
                metadata = self.job.metadata.model_copy(update={"annotations": annotations})
                self.job = self.job.model_copy(update={"metadata": metadata})
                self.writes.append("annotation")

    def _at_the_queue(self, action: CreateWorkload | PatchWorkload | DeleteWorkload) -> None:
        if self.queue_refuses is not None and not isinstance(action, DeleteWorkload):
            name = action.manifest["metadata"]["name"] if isinstance(action, CreateWorkload) else action.name
            self.facts = replace(self.facts, workload=WorkloadAnswer(name, None, self.queue_refuses, self.now))
            return
        match action:
            case CreateWorkload(manifest):
                name, uid = manifest["metadata"]["name"], f"workload-{len(self.writes)}"
                assert name not in self.workloads, "no Workload is created twice"
                stored = json.loads(json.dumps(manifest))
                stored["metadata"] |= {"uid": uid, "resourceVersion": "1"}
                self.workloads[name] = stored
                self.writes.append(f"Workload/{name}")
            case PatchWorkload(name, version, patch):
                known = self.workloads[name]
                assert version == known["metadata"]["resourceVersion"]
                status = {**known.get("status", {}), **patch.get("status", {})}
                metadata = {**known["metadata"], **patch.get("metadata", {}), "resourceVersion": f"{int(version) + 1}"}
                self.workloads[name] = {**known, "metadata": metadata, "status": status}
                told = ",".join(f"{each['type']}={each['status']}" for each in status.get("conditions", []))
                self.writes.append(f"patch Workload/{name} {told}")
            case DeleteWorkload(name, uid):
                assert self.workloads[name]["metadata"]["uid"] == uid
                del self.workloads[name]
                self.writes.append(f"delete Workload/{name}")
        self._answer(ReadWorkload(name, self.now))

    def _foresee(self, asked: ForeseePlan) -> Foreseen:
        self.foresights += 1
        return sent(foresee(*sent((asked.case, asked.nodes, asked.device, asked.preflight))))

    def _create(self, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        assert name not in self.pods or self.pods[name].gone, "no pod is created twice"
        self.created.append(manifest)
        stored = json.loads(json.dumps(manifest))
        stored["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "1"}
        self.pods[name] = pod_view(stored, self.now)
        self.writes.append(f"pod {name}")

    def remove(self, *names: str) -> None:
        """The kubelet has ended the pods, and they are gone."""
        for name in names or [pod.name for pod in self.pods.values() if pod.deleted_at is not None]:
            del self.pods[name]


def agent_says(index: int, rank: int | None, exit_code: int | None, reason: str = "RankFailed", **more: Any) -> str:
    """Write a termination message as the agent does, with a log tail."""
    said = {"protocol": 3, "reason": reason, "index": index, "rank": rank, "exitCode": exit_code, **more}
    return json.dumps(said) + "\nlast line of the log"
