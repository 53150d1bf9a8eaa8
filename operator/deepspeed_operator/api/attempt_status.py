"""One attempt at a run in status: where it stands, and what came of those that have ended."""

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.markers import Atomic, Timestamp
from deepspeed_operator.api.progress import Steps
from deepspeed_operator.api.queueing import Placement
from deepspeed_operator.api.restarts import MAX_NODES, Restarts

MAX_MESSAGE = 32_768  # the limit of a Kubernetes condition's message
MAX_ATTEMPTS = 10
MAX_CAUSE = 1024
MAX_REPLACEMENTS = 50
MAX_LOSS = 300
MAX_SAVED = 128


def legible(length: int) -> BeforeValidator:
    """Users, kubelets and agents are quoted, whose words may be of any length, and have bytes that are no text."""
    return BeforeValidator(
        lambda text: text[:length].encode("utf-8", "replace").decode() if isinstance(text, str) else text
    )


class Phase(StrEnum):
    """Where an attempt stands: what is done about it depends on this, and on the pods that are seen."""

    QUEUED = "Queued"
    STARTING = "Starting"
    REFUSED = "Refused"
    RUNNING = "Running"
    REPLACING = "Replacing"
    EVICTING = "Evicting"
    BACKING_OFF = "BackingOff"
    STOPPING = "Stopping"
    SUSPENDED = "Suspended"
    ENDED = "Ended"


class Obstacle(ApiModel):
    """What keeps an attempt from running."""

    reason: str = Field(max_length=256, description="A CamelCase word for programs. Example: Unschedulable")
    message: Annotated[str, legible(MAX_MESSAGE)] = Field(
        max_length=MAX_MESSAGE, description="What is the case, and what to do next."
    )


class Replacement(ApiModel):
    """A pod that takes the place of one that was lost, while the others of the attempt keep theirs."""

    number: int = Field(ge=1, description="Counts those of the attempt from 1; the pod's name ends in -r and this.")
    index: int = Field(ge=0, description="The index, and by it the hostname, that it takes over.")
    time: Timestamp = Field(description="When it was decided upon.")
    reason: str = Field(max_length=256, description="Why the pod before it was lost, a word for programs.")
    pod: str = Field(max_length=253, description="The pod before it.")
    node: str | None = Field(default=None, max_length=253, description="The Kubernetes node that one ran on.")
    fenced: bool = Field(
        description="Whether that one was known to have ended. Else the agents wait until its ranks have for sure."
    )
    message: Annotated[str, legible(MAX_LOSS)] = Field(max_length=MAX_LOSS, description="The cause in words.")


class AttemptStatus(ApiModel):
    """The pods of a run, made together and ended together."""

    number: int = Field(description="Grows over all runs of the job, from 1.")
    phase: Phase = Field(
        description="Queued: no pod is made until its queue admits it. Starting: its pods are made, or wait for "
        "something. Refused: the API server refused one of them, "
        "and none is kept until the next try. Running: all ranks run. Replacing: pods were lost, and the others wait "
        "for those that take their places. Evicting: its queue takes the quota back, and its pods were told to end. "
        "BackingOff: it has failed, and another attempt "
        "follows at nextTime. Stopping: its pods were told to end. Suspended: "
        "none is left. Ended: it has its result.",
    )
    start_time: Timestamp = Field(description="When the attempt began.")
    admitted_time: Timestamp | None = Field(
        default=None,
        description="Since when all of its pods may start; the startup deadline counts from here. Absent while old "
        "pods may still write, or a queue or a scheduling gate keeps its pods back.",
    )
    running_time: Timestamp | None = Field(
        default=None,
        description="When all of its ranks were first seen to run.",
    )
    round: int = Field(
        default=1, ge=1, description="Which start of the ranks in these pods is the latest that is known, from 1."
    )
    restarts: Restarts | None = Field(
        default=None, description="How often the ranks have started again in these pods. Absent: never."
    )
    restarts_left: Restarts | None = Field(
        default=None, description="What was left of each budget when the attempt began, for restarts in these pods."
    )
    reached_step: Steps | None = Field(
        default=None,
        description="The highest optimizer step that was known of the run when the attempt began: what its ranks make "
        "up to there they repeat. Absent: none.",
    )
    replacements: Annotated[list[Replacement], Atomic()] | None = Field(
        default=None,
        max_length=MAX_REPLACEMENTS,
        description="Pods that took the places of lost ones, the newest last. Absent: none.",
    )
    excluded_nodes: Annotated[list[Annotated[str, Field(max_length=253)]], Atomic()] | None = Field(
        default=None,
        max_length=MAX_NODES,
        description="Nodes that its pods keep off, since they were at fault twice within 24 hours.",
    )
    next_time: Timestamp | None = Field(
        default=None, description="When the next attempt begins. Absent unless the phase is BackingOff."
    )
    next_nodes: int | None = Field(
        default=None, description="How many nodes the next attempt has, where it is to have fewer than spec.nodes."
    )
    resized: Annotated[str, legible(MAX_CAUSE)] | None = Field(
        default=None,
        max_length=MAX_CAUSE,
        description="With spec.elastic: why it has fewer nodes than the run was accepted with, and what of its "
        "configuration is another than in dsConfig. Absent: it has them all, and the configuration as it was written.",
    )
    placement: Placement | None = Field(
        default=None, description="Where its queue has quota for its pods. Absent without a queue, and while it waits."
    )
    obstacle: Obstacle | None = Field(
        default=None, description="What keeps it from running. Absent where nothing is known to."
    )

    @property
    def latest_replacements(self) -> dict[int, Replacement]:
        """The replacement that is the pod of its index now, by that index."""
        return {each.index: each for each in self.replacements or ()}


class AttemptOutcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    EVICTED = "Evicted"
    REPLACED = "Replaced"
    RESIZED = "Resized"


class EndedAttempt(ApiModel):
    """An attempt that has ended."""

    number: int = Field(description="Its number.")
    nodes: int | None = Field(default=None, description="How many pods it had.")
    rounds: int | None = Field(default=None, description="How often its ranks were started.")
    run_id: str = Field(default="", max_length=64, description="The run that it was an attempt at.")
    start_time: Timestamp = Field(description="When it began.")
    running_time: Timestamp | None = Field(
        default=None,
        description="When all of its ranks were first seen to run. Absent where they never were.",
    )
    end_time: Timestamp = Field(description="When it ended.")
    outcome: AttemptOutcome = Field(
        description="Succeeded or Failed: by itself. Suspended: by spec.suspend. Evicted: by its queue. Replaced: by "
        "another spec.runId. Resized: the scheduler had no room for all of its pods, and fewer follow."
    )
    reason: str | None = Field(
        default=None, max_length=256, description="Why it failed or was evicted, a word for programs."
    )
    category: str | None = Field(
        default=None,
        max_length=64,
        description="Where that lies: User, Infrastructure, Disruption or Operator, as docs/failures.md says.",
    )
    rank: int | None = Field(default=None, description="The rank that failed first, where it is known.")
    pod: str | None = Field(default=None, max_length=253, description="Its pod.")
    node: str | None = Field(default=None, max_length=253, description="The Kubernetes node the pod ran on.")
    killed_after_seconds: int | None = Field(
        default=None,
        description="Seconds after SIGTERM at which ranks were ended by SIGKILL. Absent where all had ended by then.",
    )
    saved_at_end: Annotated[str, legible(MAX_SAVED)] | None = Field(
        default=None,
        max_length=MAX_SAVED,
        description="Whether the ranks saved a checkpoint when they were told to end. Absent where they were not, or "
        "it is not known where they save. Examples: saved at step 40, 3 s before the end; did not save",
    )
    message: Annotated[str, legible(MAX_CAUSE)] | None = Field(
        default=None, max_length=MAX_CAUSE, description="The cause in words."
    )
