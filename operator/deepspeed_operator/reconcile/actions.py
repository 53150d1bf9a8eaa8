"""What the reconciler wants done. The controller does it, in order, after the status is written."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from deepspeed_operator.api.status import DeepSpeedJobStatus

if TYPE_CHECKING:  # who only judges a job need not load the planner for it
    from deepspeed_operator.job.data_sheets import Device
    from deepspeed_operator.job.gpus import Wanted
    from deepspeed_operator.plan.memory.case import Case, Missing
    from deepspeed_operator.plan.time.measured import Measured
    from deepspeed_operator.reconcile.observe.observed import Observed

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReadConfigMap:
    """Fill `facts.config_maps[name]`, then reconcile again; without a key nobody asks for more than that it exists."""

    name: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class FindGpus:
    """Fill `facts.gpus` from the labels of all nodes, as minutes ago at most, then reconcile again."""

    wanted: "Wanted"


@dataclass(frozen=True, slots=True)
class JudgeRun:
    """Fill `facts.judged` with what `judge_run` returns, computed where it may exceed time and memory.

    `digest`: two questions of one digest have one answer.
    """

    observed: "Observed"
    digest: str


@dataclass(frozen=True, slots=True)
class TryPod:
    """Post the pod with dryRun=All and fill `facts.trial`, then reconcile again.

    Pods of one likeness differ by what names their job alone. Quotas must have room for so many at once; where they
    replace pods of the job, which end first, for so many at all.
    """

    pod: Manifest
    pod_digest: str
    likeness: str
    pods: int
    replaces: bool


@dataclass(frozen=True, slots=True)
class ReadAgent:
    """Fill `facts.agent` from rank 0's agent (2 s at most; no answer is an answer), then reconcile again."""

    attempt: int
    address: str
    port: int
    early: bool = False


@dataclass(frozen=True, slots=True)
class CorrectPlan:
    """Fill `facts.corrected` with what these tell, which takes longer than a decision may, then reconcile again.

    `preflight`: bytes a second of bus bandwidth, which counts where the ranks measured no all-reduce.
    """

    attempt: int
    case: "Case | Missing"
    nodes: int
    measured: "Measured"
    preflight: int | None = None


@dataclass(frozen=True, slots=True)
class ForeseePlan:
    """Fill `facts.foreseen` with what a job will be like by its GPUs' data sheet, then reconcile again.

    `preflight`: bytes a second of bus bandwidth among its ranks, if that was measured.
    """

    case: "Case"
    nodes: int
    device: "Device"
    preflight: int | None = None


@dataclass(frozen=True, slots=True)
class ConfirmMissing:
    """GET the pods: one that exists goes into the pod cache, the others into `facts.confirmed_missing`."""

    pods: tuple[str, ...]


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
class DeletePod:
    """Delete exactly this pod. With a resourceVersion a change since then (a result) prevents it."""

    name: str
    uid: str
    resource_version: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteConfigMaps:
    """Delete ConfigMaps and Secrets of earlier attempts, if any, and fill `facts.kept_from` with this attempt."""

    attempt: int
    names: tuple[str, ...]


Question = ReadConfigMap | FindGpus | JudgeRun | TryPod | ReadAgent | CorrectPlan | ForeseePlan | ConfirmMissing
Action = Question | Ensure | EnsureToken | CreatePods | DeletePod | DeleteConfigMaps


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A Kubernetes Event about the job, emitted once its status is written."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Status to write (if it differs), then events, then actions; and when to look again without being told."""

    status: DeepSpeedJobStatus
    actions: tuple[Action, ...] = ()
    events: tuple[JobEvent, ...] = ()
    check_at: datetime | None = None

    def no_later_than(self, check_at: datetime | None) -> "Outcome":
        """Return the same outcome with a look at this time at the latest; None asks for none."""
        due = [at for at in (self.check_at, check_at) if at is not None]
        return replace(self, check_at=min(due, default=None))
