"""What is known about one job at one moment. All of it is plain data; nothing here asks anybody."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, TypeVar

from deepspeed_operator.api.attempt_status import AttemptStatus
from deepspeed_operator.api.bounds import LARGEST
from deepspeed_operator.api.engine_report import Engine
from deepspeed_operator.api.failure_policy import FailurePolicy
from deepspeed_operator.api.fleet import JobDefaults, RunDefaults
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Run
from deepspeed_operator.api.transport import Transport
from deepspeed_operator.job.fleet_defaults import with_defaults
from deepspeed_operator.reconcile.observe.checkpoints import CheckpointReport
from deepspeed_operator.reconcile.observe.half_gang import HalfGang
from deepspeed_operator.reconcile.observe.messages import AgentMessage
from deepspeed_operator.reconcile.observe.pods import PodView
from deepspeed_operator.reconcile.observe.rounds import Rounds
from deepspeed_operator.reconcile.observe.told_hang import ToldHang, ToldStraggler
from deepspeed_operator.reconcile.observe.told_progress import ToldProgress
from deepspeed_operator.reconcile.observe.told_wall_time import AgentWallTime
from deepspeed_operator.reconcile.observe.unanswered import Unanswered
from deepspeed_operator.reconcile.observe.workload_view import Lookup, WorkloadAnswer, WorkloadView

if TYPE_CHECKING:  # who only judges a job need not load the planner for it
    from deepspeed_operator.job.gpus import Gpu, GpuRequest
    from deepspeed_operator.plan.advice.forecast import Foreseen
    from deepspeed_operator.plan.advice.recalibration import Corrected
    from deepspeed_operator.plan.time.measured import Measured
    from deepspeed_operator.reconcile.actions import ForeseePlan, Question
    from deepspeed_operator.reconcile.admission.question import Admission

SHOWN_KEYS = 20
# NameConflict: the name belongs to an object that is not ours.
RefusalReason = Literal[Reason.PODS_REFUSED, Reason.NAME_CONFLICT, Reason.GANG_GIVEN_BACK]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class ConfigMapContent:
    """A ConfigMap as it was read; `keys` is None if there is none of that name.

    `key` is the one whose value was asked for, if any was. `size` in bytes and `digest` are those of its value, which
    may be absent; `text` is the value itself, unless it is too large to be a configuration, or was forgotten.
    `config_digest` is that of the configuration that the text says; None where it says none, or nobody has read it.
    """

    keys: tuple[str, ...] | None
    read_at: datetime
    key: str | None = None
    size: int = 0
    digest: str | None = None
    text: str | None = field(default=None, repr=False)
    config_digest: str | None = None

    @property
    def forgotten(self) -> bool:
        """Whether the value is to be read again by whoever needs it."""
        return self.text is None and self.digest is not None and self.size <= LARGEST


def content_of(data: Mapping[str, str] | None, key: str | None, read_at: datetime) -> ConfigMapContent:
    """Return what is kept of a ConfigMap for whoever asks for the value of this key; None asks for none."""
    if data is None:
        return ConfigMapContent(None, read_at, key)
    keys = tuple(sorted(data)[:SHOWN_KEYS])
    text = data.get(key) if key is not None else None
    if text is None:
        return ConfigMapContent(keys, read_at, key)
    value = text.encode("utf-8", "replace")
    digest, size = sha256(value).hexdigest(), len(value)
    return ConfigMapContent(keys, read_at, key, size, digest, text if size <= LARGEST else None)


@dataclass(frozen=True, slots=True)
class FoundGpus:
    """The kinds of GPUs on nodes where such pods may land, the smallest first; none where nodes may not be read."""

    request: "GpuRequest"
    kinds: "tuple[Gpu, ...]"
    read_at: datetime


@dataclass(frozen=True, slots=True)
class SetAside:
    """A job that costs more than a job may, or ended a process of the operator's: why, and when it is tried again."""

    why: str
    until: datetime


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """The answer to JudgeRun; questions are those that are to be answered first."""

    digest: str
    answer: "Admission | SetAside | tuple[Question[object], ...]"


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """The API server's answer to a pod that was posted with dryRun; `refusal` is None if it accepted."""

    pod_digest: str
    refusal: str | None
    invalid: bool  # the pod itself is wrong (400, 422), not just unwelcome now (quota, Pod Security)
    answered_at: datetime
    quota: bool = False  # a quota has no room for it now: nobody has to correct anything


@dataclass(frozen=True, slots=True)
class RunCount:
    """How many other jobs of the namespace have a run that has not ended, one that is suspended included."""

    others: int
    read_at: datetime


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an attempt's pods are not kept, in the API server's words or in ours, and when to try again."""

    attempt: int
    reason: RefusalReason
    message: str
    retry_at: datetime


@dataclass(frozen=True, slots=True)
class KeptChildren:
    """Why what a run has left is still there, in the API server's words, and when to try again."""

    attempt: int
    message: str
    retry_at: datetime


@dataclass(frozen=True, slots=True)
class HalfGangs:
    """All gangs of which a part is placed, as they were seen at one moment."""

    found: tuple[HalfGang, ...]
    read_at: datetime


@dataclass(frozen=True, slots=True)
class WorldReport:
    """What is wrong with the world that the ranks formed, or was not seen of it; the engines that DeepSpeed made; and
    which ranks did not begin from one checkpoint, in words.
    """

    note: str | None = None
    engines: tuple[Engine, ...] = ()
    starts: str | None = None


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What rank 0's agent answered; nothing but the first four if it did not answer."""

    attempt: int
    read_at: datetime
    silent: int = 0  # how often in a row it has not answered
    early: bool = False  # asked before the ranks ran: it knows less than it will
    missing: tuple[str, ...] = ()  # hosts whose agents have not reached it, ten at most
    refused: Mapping[str, str] = field(default_factory=dict[str, str])  # by address, why
    deepspeed_version: str | None = None
    warnings: tuple[str, ...] = ()
    transport: Transport | None = None
    measured: "Measured | None" = None
    stuck: AgentMessage | None = None  # how the gang has ended, where rank 0's pod cannot
    world: WorldReport | None = None
    rounds: Rounds | None = None
    progress: ToldProgress | None = None
    hang: ToldHang | None = None
    stragglers: tuple[ToldStraggler, ...] = ()
    checkpoint: CheckpointReport | None = None
    wall_time: AgentWallTime | None = None


@dataclass(frozen=True, slots=True)
class CorrectedPlan:
    """What an attempt's first steps tell beside its plan."""

    attempt: int
    corrected: "Corrected"


@dataclass(frozen=True, slots=True)
class ForeseenPlan:
    """What a job will be like, as far as its GPUs' data sheet tells; None where the planner failed."""

    question: "ForeseePlan"
    foreseen: "Foreseen | None"


@dataclass(frozen=True, slots=True)
class Facts:
    """Answers to earlier questions. They are lost with the process and asked for again."""

    config_maps: Mapping[str, ConfigMapContent] = field(default_factory=dict[str, ConfigMapContent])
    gpus: FoundGpus | None = None
    judged: JudgedRun | None = None
    dry_run: DryRunResult | None = None
    runs: RunCount | None = None
    refusal: Refusal | None = None
    half_gangs: HalfGangs | None = None
    agent: AgentReport | None = None
    corrected: CorrectedPlan | None = None
    foreseen: ForeseenPlan | None = None
    confirmed_missing: frozenset[str] = frozenset()  # pods that a GET did not find
    workload: WorkloadAnswer | None = None  # of the job, where no watch tells of it
    of_queue: Mapping[tuple[str, str], Lookup] = field(default_factory=dict[tuple[str, str], Lookup])
    aside: SetAside | None = None  # the job is not to be looked into for now
    oldest_config_map: int | None = None  # the attempt before which none has a ConfigMap any more
    childless: int | None = None  # the attempt whose run has nothing left beside its pods
    kept_children: KeptChildren | None = None
    status_written_at: datetime | None = None  # by this process; bounds how often counters alone are written

    def get(self, question: "Question[Answer]") -> Answer:
        """Return the answer to the question; raise Unanswered if there is none yet."""
        answer = question.answer_among(self)
        if answer is None:
            raise Unanswered(question)
        return answer

    def want(self, *questions: "Question[object]") -> None:
        """Raise Unanswered with all of the questions that have no answer yet, if there are any."""
        open_ones = [each for each in questions if each.answer_among(self) is None]
        if open_ones:
            raise Unanswered(*open_ones)

    def without_texts(self) -> "Facts":
        """Return the facts without users' data, which is kept no longer than a job is looked at."""
        if not any(content.text for content in self.config_maps.values()):
            return self
        kept = {name: replace(content, text=None) for name, content in self.config_maps.items()}
        return replace(self, config_maps=kept)


@dataclass(frozen=True, slots=True)
class Observed:
    """One job, the pods that carry its name (of any uid and attempt), and the answers so far.

    `workload` is the one that the job's status names, as a watch tells; None where none does. `watches_workloads`:
    whether it would tell of one. `defaults`: what of the job's spec is not its author's; None: nothing.
    """

    job: DeepSpeedJob
    pods: tuple[PodView, ...]
    facts: Facts
    now: datetime
    workload: WorkloadView | None = None
    watches_workloads: bool = False
    defaults: RunDefaults | None = None

    def with_defaults(self, defaults: JobDefaults | None) -> "Observed":
        """Return the same with a job that has these defaults where it says nothing."""
        if defaults is None:
            return self
        job, added = with_defaults(self.job, defaults)
        return replace(self, job=job, defaults=added)

    @property
    def asks_for_another_run(self) -> bool:
        """Whether spec asks for another run than the one that was accepted last."""
        return self.job.status.run is not None and self.job.status.run.id != self.job.spec.run_id

    @property
    def run(self) -> Run:
        """The accepted run, of which there must be one."""
        assert self.job.status.run is not None, "nothing is asked about a run before one was accepted"
        return self.job.status.run

    @property
    def policy(self) -> FailurePolicy:
        """By what the accepted run goes on after failures."""
        return self.run.failure_policy or FailurePolicy()

    @property
    def attempt(self) -> AttemptStatus:
        """The current attempt, of which there must be one: it is recorded together with its run."""
        assert self.job.status.attempt is not None, "an attempt is recorded together with its run"
        return self.job.status.attempt

    @property
    def agent(self) -> AgentReport | None:
        """The latest answer of rank 0's agent about the current attempt; None if there is none."""
        report = self.facts.agent
        return report if report is not None and report.attempt == self.attempt.number else None
