"""What the reconciler wants done. The controller does it, in order, after the status is written."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from deepspeed_operator.api.gangs import GangScheduling
from deepspeed_operator.api.status import DeepSpeedJobStatus

if TYPE_CHECKING:  # who only judges a job need not load the planner for it
    from deepspeed_operator.job.data_sheets import Device
    from deepspeed_operator.job.gpus import GpuRequest
    from deepspeed_operator.plan.memory.case import Case, Missing
    from deepspeed_operator.plan.time.measured import Measured
    from deepspeed_operator.reconcile.observe.observed import (
        AgentReport,
        ConfigMapContent,
        CorrectedPlan,
        DryRunResult,
        Facts,
        ForeseenPlan,
        FoundGpus,
        HalfGangs,
        JudgedRun,
        Lookup,
        Observed,
        RunCount,
        WorkloadAnswer,
    )

Manifest = dict[str, Any]
Answer_co = TypeVar("Answer_co", covariant=True)


class Question(ABC, Generic[Answer_co]):
    """What a decision needs from outside. The controller answers it into the job's facts, then reconciles again."""

    __slots__ = ()

    @abstractmethod
    def answer_among(self, facts: "Facts") -> Answer_co | None:
        """Return the answer that the facts hold; None where they hold none that will do."""


@dataclass(frozen=True, slots=True)
class ReadConfigMap(Question["ConfigMapContent"]):
    """Fill `facts.config_maps[name]`.

    `key`: the one whose value is needed, None where it is enough that the ConfigMap exists. `text`: whether the value
    itself is needed, not only its digest. `newer_than`: an answer that was read no later will not do; None takes any.
    """

    name: str
    key: str | None = None
    text: bool = field(default=False, compare=False)
    newer_than: datetime | None = field(default=None, compare=False)

    def answer_among(self, facts: "Facts") -> "ConfigMapContent | None":
        content = facts.config_maps.get(self.name)
        if content is None or self.key not in {None, content.key} or (self.text and content.forgotten):
            return None
        return content if self.newer_than is None or content.read_at > self.newer_than else None


@dataclass(frozen=True, slots=True)
class FindGpus(Question["FoundGpus"]):
    """Fill `facts.gpus` from the labels of all nodes; an answer that was read no later than `newer_than` is stale."""

    request: "GpuRequest"
    newer_than: datetime = field(compare=False)

    def answer_among(self, facts: "Facts") -> "FoundGpus | None":
        found = facts.gpus
        answers = found is not None and found.request == self.request and found.read_at > self.newer_than
        return found if answers else None


@dataclass(frozen=True, slots=True)
class JudgeRun(Question["JudgedRun"]):
    """Fill `facts.judged` with what `judge_run` returns, computed where it may exceed time and memory.

    `digest`: two questions of one digest have one answer.
    """

    observed: "Observed"
    digest: str

    def answer_among(self, facts: "Facts") -> "JudgedRun | None":
        known = facts.judged
        return known if known is not None and known.digest == self.digest else None


@dataclass(frozen=True, slots=True)
class DryRunPod(Question["DryRunResult"]):
    """Post the pod with dryRun=All and fill `facts.dry_run`.

    Pods of one likeness differ by what names their job alone. Quotas must have room for so many at once; where they
    replace pods of the job, which end first, for so many at all.
    """

    pod: Manifest
    pod_digest: str
    likeness: str
    pods: int
    replaces: bool

    def answer_among(self, facts: "Facts") -> "DryRunResult | None":
        known = facts.dry_run
        return known if known is not None and known.pod_digest == self.pod_digest else None


@dataclass(frozen=True, slots=True)
class CountRuns(Question["RunCount"]):
    """Fill `facts.runs`. Where fewer than `most` other jobs have a run, the place is the job's for a minute.

    An answer that was read no later than `newer_than` is stale.
    """

    most: int
    newer_than: datetime = field(compare=False)

    def answer_among(self, facts: "Facts") -> "RunCount | None":
        known = facts.runs
        return known if known is not None and known.read_at > self.newer_than else None


@dataclass(frozen=True, slots=True)
class ReadAgent(Question["AgentReport"]):
    """Fill `facts.agent` from rank 0's agent (2 s at most; no answer is an answer)."""

    attempt: int
    address: str
    port: int
    early: bool = False

    def answer_among(self, facts: "Facts") -> "AgentReport | None":
        known = facts.agent
        return known if known is not None and known.attempt == self.attempt else None


@dataclass(frozen=True, slots=True)
class CorrectPlan(Question["CorrectedPlan"]):
    """Fill `facts.corrected` with what these tell, which takes longer than a decision may.

    `preflight`: bytes a second of bus bandwidth, which counts where the ranks measured no all-reduce.
    """

    attempt: int
    case: "Case | Missing"
    nodes: int
    measured: "Measured"
    preflight: int | None = None

    def answer_among(self, facts: "Facts") -> "CorrectedPlan | None":
        known = facts.corrected
        return known if known is not None and known.attempt == self.attempt else None


@dataclass(frozen=True, slots=True)
class ForeseePlan(Question["ForeseenPlan"]):
    """Fill `facts.foreseen` with what a job will be like by its GPUs' data sheet.

    `preflight`: bytes a second of bus bandwidth among its ranks, if that was measured.
    """

    case: "Case"
    nodes: int
    device: "Device"
    preflight: int | None = None

    def answer_among(self, facts: "Facts") -> "ForeseenPlan | None":
        known = facts.foreseen
        return known if known is not None and known.question == self else None


@dataclass(frozen=True, slots=True)
class FindHalfGangs(Question["HalfGangs"]):
    """Fill `facts.half_gangs` with all gangs of which a part is placed, at a time after `newer_than`."""

    newer_than: datetime

    def answer_among(self, facts: "Facts") -> "HalfGangs | None":
        known = facts.half_gangs
        return known if known is not None and known.read_at > self.newer_than else None


@dataclass(frozen=True, slots=True)
class ConfirmMissing(Question[frozenset[str]]):
    """GET the pods: one that exists goes into the pod cache, the others into `facts.confirmed_missing`."""

    pods: tuple[str, ...]

    def answer_among(self, facts: "Facts") -> frozenset[str] | None:
        return facts.confirmed_missing if facts.confirmed_missing.issuperset(self.pods) else None


@dataclass(frozen=True, slots=True)
class ReadWorkload(Question["WorkloadAnswer"]):
    """Fill `facts.workload` with the Workload of this name; an answer that was read no later will not do."""

    name: str
    newer_than: datetime = field(compare=False)

    def answer_among(self, facts: "Facts") -> "WorkloadAnswer | None":
        known = facts.workload
        answers = known is not None and known.name == self.name and known.read_at > self.newer_than
        return known if answers else None


@dataclass(frozen=True, slots=True)
class ReadOfQueue(Question["Lookup"]):
    """Fill `facts.of_queue` with an object of the whole cluster, such as a ResourceFlavor, by its kind and name."""

    kind: Literal["ResourceFlavor", "WorkloadPriorityClass", "PriorityClass"]
    name: str
    newer_than: datetime = field(compare=False)

    def answer_among(self, facts: "Facts") -> "Lookup | None":
        known = facts.of_queue.get((self.kind, self.name))
        return known if known is not None and known.read_at > self.newer_than else None


@dataclass(frozen=True, slots=True)
class Ensure:
    """Make the object exist with at least this content. A foreign owner fills `facts.refusal` (NameConflict)."""

    manifest: Manifest
    doubted: bool = False  # something is not as it should be: perhaps somebody has deleted it since it was made


@dataclass(frozen=True, slots=True)
class EnsureToken:
    """Make the attempt's Secret exist, with the attempt's token in it, which is never read."""

    manifest: Manifest
    attempt: int


@dataclass(frozen=True, slots=True)
class CreatePods:
    """POST the pods in growing batches. An existing pod of ours is read and kept.

    A refusal stops it and fills `facts.refusal`; beginning again clears it.
    """

    attempt: int
    pods: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Fill `facts.refusal`, as if the attempt's pods had been refused with this message: they go for a random pause."""

    attempt: int
    message: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete exactly this pod. With a resourceVersion a change since then (a result) prevents it.

    `forced`: without waiting for its node, which does not answer.
    """

    name: str
    uid: str
    resource_version: str | None = None
    forced: bool = False


@dataclass(frozen=True, slots=True)
class DeleteConfigMaps:
    """Delete ConfigMaps and Secrets of earlier attempts, if any; fill `facts.oldest_config_map` with this attempt.

    PodGroups of these schedulers that have the same names go, too.
    """

    attempt: int
    names: tuple[str, ...]
    gangs: frozenset[GangScheduling] = frozenset()


@dataclass(frozen=True, slots=True)
class DeleteChildren:
    """Delete what a run has left beside its pods, if any; fill `facts.childless` with its last attempt.

    Where something may not be deleted, fill `facts.kept_children` with why.

    `config_maps`: names, of which Secrets go, too, and PodGroups of `gangs`. `service`: the name of the Service.
    `slices`: EndpointSlices.
    """

    attempt: int
    config_maps: tuple[str, ...]
    service: str
    slices: tuple[str, ...]
    gangs: frozenset[GangScheduling] = frozenset()


@dataclass(frozen=True, slots=True)
class CreateWorkload:
    """Make the job's Workload; one of its name that is there is read into `facts.workload`."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class PatchWorkload:
    """Merge this into exactly this version of the Workload, or of its status, and note what comes of it."""

    name: str
    resource_version: str
    patch: Manifest
    of_status: bool = True


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    """Delete exactly this Workload."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class MarkEndedRun:
    """Let the annotation of exactly this version of the job have this text; None takes it away."""

    text: str | None


OfQueue = CreateWorkload | PatchWorkload | DeleteWorkload
OfChildren = Ensure | EnsureToken | CreatePods | GiveBack | DeletePod | DeleteConfigMaps | DeleteChildren
Action = OfChildren | OfQueue | MarkEndedRun


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A Kubernetes Event about the job, emitted once its status is written."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Status to write (if it differs), events, actions, questions, in this order; and when to look again untold."""

    status: DeepSpeedJobStatus
    actions: tuple[Action, ...] = ()
    events: tuple[JobEvent, ...] = ()
    check_at: datetime | None = None
    questions: tuple[Question[object], ...] = ()  # whose answers may change all of it

    def no_later_than(self, check_at: datetime | None) -> "Outcome":
        """Return the same outcome with a look at this time at the latest; None asks for none."""
        due = [at for at in (self.check_at, check_at) if at is not None]
        return replace(self, check_at=min(due, default=None))
