"""The status of a DeepSpeedJob: what the operator says."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from deepspeed_operator.api.attempt_status import MAX_ATTEMPTS, MAX_MESSAGE, AttemptStatus, EndedAttempt, legible
from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.batch_status import Batch
from deepspeed_operator.api.checkpoint import CheckpointStatus
from deepspeed_operator.api.elastic import RunElastic
from deepspeed_operator.api.engine_report import Engine
from deepspeed_operator.api.failure_policy import FailurePolicy
from deepspeed_operator.api.fleet import RunDefaults
from deepspeed_operator.api.gangs import GangScheduling
from deepspeed_operator.api.goodput import Goodput
from deepspeed_operator.api.markers import Atomic, ListMap, Timestamp
from deepspeed_operator.api.plan_status import PlanStatus
from deepspeed_operator.api.progress import Progress
from deepspeed_operator.api.queueing import QueueStatus
from deepspeed_operator.api.restarts import MAX_NODES, BlamedNode, RecentRestarts, RepeatedFailure, Restarts
from deepspeed_operator.api.transport import Transport

MAX_FINDINGS = 50
MAX_ENDINGS = 10
MAX_ENDING = 512


class State(StrEnum):
    """A word for the printer column, derived from the run and its attempt; nothing is decided upon it."""

    INVALID = "Invalid"
    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"


class ConditionType(StrEnum):
    ACCEPTED = "Accepted"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    MEMORY_FIT = "MemoryFit"


class Condition(ApiModel):
    """One aspect of the job's state, as in metav1.Condition."""

    type: str = Field(
        max_length=316,
        description="Accepted, Running, Suspended, Complete, Failed; and, for tools that "
        "read kstatus, Ready, Reconciling, Stalled. With spec.model also MemoryFit: whether its memory will be enough.",
    )
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    reason: str = Field(min_length=1, max_length=1024, description="A CamelCase word for programs.")
    message: str = Field(max_length=MAX_MESSAGE, description="For people: what is the case, and what to do next.")
    last_transition_time: Timestamp = Field(description="When status last changed.")
    observed_generation: int | None = Field(
        default=None, ge=0, description="metadata.generation that this condition was computed from."
    )


class AcceleratorSource(StrEnum):
    """Who says what the ranks run on."""

    TEMPLATE = "Template"
    WORKER_IMAGE = "WorkerImage"
    INSTALL_DEFAULT = "InstallDefault"


class WorldAccelerator(ApiModel):
    """What each rank of the job runs on."""

    name: str | None = Field(
        default=None,
        max_length=64,
        description="In DeepSpeed's words (DS_ACCELERATOR): cpu, cuda, rocm, … Absent where nothing tells, as with a "
        "device claim.",
    )
    resource: str | None = Field(
        default=None,
        max_length=316,
        description="What a pod is limited to slotsPerNode of because nothing in the template names an accelerator. "
        "Absent where the template does, and on CPUs.",
    )
    source: AcceleratorSource = Field(
        description="Template: the trainer's resources name an accelerator, a count of 0 included, or a device claim. "
        "Else WorkerImage: the job runs in the chart's worker.image, whose accelerator is worker.accelerator. Else "
        "InstallDefault: the job has an image of its own, and the chart's defaultAccelerator holds.",
    )


class World(ApiModel):
    """The ranks of the job."""

    nodes: int = Field(description="Pods, each a host of the hostfile.")
    slots_per_node: int = Field(description="Ranks per pod.")
    size: int = Field(description="All ranks: nodes × slotsPerNode (WORLD_SIZE).")
    data_parallel: int = Field(description="Ranks that see different data.")
    accelerator: WorldAccelerator | None = Field(default=None, description="What the ranks run on, and who says so.")


class Run(ApiModel):
    """What was accepted to be run under one spec.runId."""

    id: str = Field(default="", max_length=64, description="spec.runId as it was when the run was accepted.")
    start_time: Timestamp = Field(description="When the run was accepted.")
    completion_time: Timestamp | None = Field(default=None, description="When the run ended.")
    cleanup_time: Timestamp | None = Field(
        default=None,
        description="When what belonged to the ended run was deleted, by spec.lifecycle.ttlSecondsAfterFinished.",
    )
    active_seconds: int | None = Field(
        default=None,
        description="With activeDeadlineSeconds: how long the ranks ran in those attempts of the run that have ended. "
        "The current attempt's time counts from its runningTime.",
    )
    active_deadline_seconds: int | None = Field(
        default=None,
        description="spec.lifecycle.activeDeadlineSeconds as it was when the run was accepted.",
    )
    restarts: Restarts | None = Field(
        default=None,
        description="How often its ranks have started again until the current attempt began. Absent: never.",
    )
    recent_restarts: RecentRestarts | None = Field(
        default=None, description="Those that count against spec.failurePolicy.maxInfrastructureRestarts."
    )
    repeated: RepeatedFailure | None = Field(
        default=None,
        description="The failure that came last, where the ranks took no step since the one before: three of one kind "
        "in a row end the run, and two of the user's program.",
    )
    blamed_nodes: Annotated[list[BlamedNode], Atomic()] | None = Field(
        default=None, max_length=MAX_NODES, description="Nodes that were at fault within 24 hours."
    )
    world: World = Field(
        description="The ranks of the run; with spec.elastic those of its current attempt, or of its last one."
    )
    batch: Batch | None = Field(default=None, description="Their batch sizes, as DeepSpeed computes them.")
    elastic: RunElastic | None = Field(
        default=None,
        description="With spec.elastic: the numbers of nodes that the run may have. Absent: it has no other one.",
    )
    gang: GangScheduling | None = Field(
        default=None,
        description="Whose PodGroup each attempt has, by which its pods are placed together or not at all. Absent: "
        "nobody's.",
    )
    failure_policy: FailurePolicy | None = Field(
        default=None, description="spec.failurePolicy of the run, also while spec is that of another one."
    )
    defaults: RunDefaults | None = Field(
        default=None,
        description="What the run has of the platform team's defaults, as they were when it was accepted: the chart's "
        "fleet.defaults and fleet.namespaces. docs/fleet.md. Absent: nothing.",
    )
    deepspeed_version: str | None = Field(
        default=None, max_length=64, description="DeepSpeed version found in the image, else the declared one."
    )
    config_digest: str | None = Field(
        default=None, max_length=128, description="SHA-256 of the configuration that the run uses."
    )
    spec_digests: dict[str, Annotated[str, Field(max_length=64)]] | None = Field(
        default=None,
        max_length=32,
        description="By name of a field of spec that a run is made from: a digest of what it said when the run was "
        "accepted, where it was set. configDigest is that of dsConfig.",
    )

    @property
    def all_nodes(self) -> int:
        """How many nodes it was accepted with, whatever its current attempt has."""
        return self.elastic.nodes if self.elastic is not None else self.world.nodes


class Workers(ApiModel):
    """Pods of the current attempt, by what their trainer container does."""

    ready: int = Field(default=0, description="Pods whose ranks run.")
    active: int = Field(default=0, description="Pods that have not ended, ready ones included.")
    succeeded: int = Field(default=0, description="Pods whose ranks all ended with 0.")
    failed: int = Field(default=0, description="Pods that ended otherwise.")


class FailedRanks(ApiModel):
    """How the ranks ended, where some had failed by themselves."""

    failed: int = Field(description="How many had failed by themselves when the others were stopped.")
    stopped: int = Field(description="How many ran until they were stopped.")
    exited: int = Field(description="How many had ended with exit code 0.")
    first: Annotated[list[Annotated[str, Field(max_length=MAX_ENDING)]], Atomic()] = Field(
        max_length=MAX_ENDINGS,
        description="Of those that failed the first ones, in the order of time. "
        "Example: rank 3 in pod pretrain-1-1 was killed by signal 6 (SIGABRT), 0.4 s later. "
        "The log of rank 0's pod has more of them, each with its own words.",
    )


class Failure(ApiModel):
    """The first cause of a failed run."""

    reason: str = Field(max_length=256, description="A CamelCase word for programs. Example: RankFailed")
    rank: int | None = Field(default=None, description="The rank that failed first, where it is known.")
    pod: str | None = Field(default=None, max_length=253, description="Its pod.")
    node: str | None = Field(default=None, max_length=253, description="The Kubernetes node the pod ran on.")
    exit_code: int | None = Field(default=None, description="Exit code of the rank or container.")
    signal: int | None = Field(default=None, description="Signal that killed the rank or container.")
    message: Annotated[str, legible(MAX_MESSAGE)] = Field(
        max_length=MAX_MESSAGE, description="The cause in words, then the last lines of the log."
    )
    ranks: FailedRanks | None = Field(
        default=None, description="How all ranks ended. Absent where rank 0's agent could not tell."
    )


class Level(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    ADVICE = "advice"


class Finding(ApiModel):
    """Something about the job's definition or image that is worth knowing."""

    level: Level = Field(description="error: refused. warning: ignored or surprising. advice: could be better.")
    code: str = Field(
        default="", max_length=64, description="What it is about, for programs; docs/findings.md lists the codes."
    )
    path: Annotated[str, legible(1024)] = Field(
        max_length=1024, description="Where: a path in the job, such as spec.dsConfig.train_batch_size."
    )
    message: Annotated[str, legible(4096)] = Field(max_length=4096, description="What is the case.")
    fix: Annotated[str, legible(4096)] = Field(default="", max_length=4096, description="What to write instead.")

    def __str__(self) -> str:
        if not self.fix:
            return f"{self.path}: {self.message}"
        return f"{self.path}: {self.message}{'' if self.message.endswith('.') else '.'} Fix: {self.fix}"


class DeepSpeedJobStatus(ApiModel):
    """What is the case, why, and what came of it."""

    observed_generation: int | None = Field(default=None, description="metadata.generation that this status is about.")
    state: State | None = Field(
        default=None,
        description="One word, derived from run and attempt, for printing and for pipelines that read scalars: "
        + ", ".join(State)
        + ".",
    )
    conditions: Annotated[list[Condition], ListMap("type")] = Field(
        default=[], max_length=16, description="The job's state; each message says what to do next."
    )
    run: Run | None = Field(
        default=None,
        description="The run that was accepted last, also while spec.runId asks for another one that is refused.",
    )
    attempt: AttemptStatus | None = Field(default=None, description="The current attempt of the run, or its last one.")
    attempts: Annotated[list[EndedAttempt], Atomic()] = Field(
        default=[], max_length=MAX_ATTEMPTS, description="The attempts that have ended, of all runs; the newest last."
    )
    oldest_config_map: int | None = Field(
        default=None,
        description="Number of the earliest attempt whose ConfigMap may still be there. Absent: the first.",
    )
    restarts: int | None = Field(
        default=None, description="How often the ranks of the run have started again, in their pods or in new ones."
    )
    queue: QueueStatus | None = Field(default=None, description="The queue of the run. Absent: it has, and had, none.")
    workers: Workers | None = Field(default=None, description="Pods of the current attempt.")
    failure: Failure | None = Field(default=None, description="Why the run failed.")
    transport: Transport | None = Field(default=None, description="How the ranks of the attempt are connected.")
    engine: Engine | None = Field(
        default=None, description="What DeepSpeed made of the configuration, as deepspeed.initialize returned it."
    )
    progress: Progress | None = Field(
        default=None,
        description="How far the run is, and when it will be done; written once a minute at most. Missing once the run "
        "is complete, since the steps after the last that was seen are not known.",
    )
    goodput: Goodput | None = Field(
        default=None,
        description="Where the wall time of the run went, and how much of it made steps that count. Written with the "
        "rest of status, and never alone.",
    )
    plan: PlanStatus | None = Field(
        default=None,
        description="With spec.model and launcher Ranks: what the attempt's first 20 steps took, beside what was "
        "predicted.",
    )
    checkpoint: CheckpointStatus | None = Field(
        default=None,
        description="The newest complete checkpoint of the run. Absent where it is not known where the run saves.",
    )
    warnings: int | None = Field(default=None, description="How many of the findings are warnings.")
    findings: Annotated[list[Finding], Atomic()] = Field(
        default=[], max_length=MAX_FINDINGS, description="Warnings and advice about the job and its image."
    )

    @property
    def attempt_number(self) -> int:
        """The number of the current attempt; 0 before the first."""
        return self.attempt.number if self.attempt is not None else 0
