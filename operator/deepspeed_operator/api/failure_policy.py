"""spec.failurePolicy: after which failures a run goes on, and how often."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.markers import Atomic, Cel, left_open
from deepspeed_operator.api.reasons import Category

DEFAULT_RESTARTS: Final = 3
MAX_RULES: Final = 20
MAX_BACKOFF_SECONDS: Final = 300
# An agent that hears nothing of the others for so long ends its ranks: after it, nothing of a lost pod still writes.
FENCE_SECONDS: Final = 20
DEFAULT_FORCE_SECONDS: Final = 30
DEFAULT_REPLACEMENT_SECONDS: Final = 300
Count = Annotated[int, Field(ge=0, le=1000)]


class RuleAction(StrEnum):
    RESTART = "Restart"
    RESTART_WITHOUT_COUNTING = "RestartWithoutCounting"
    FAIL = "Fail"


class WarmInterpreters(StrEnum):
    AUTO = "Auto"
    OFF = "Off"


class FailureRule(ApiModel):
    """What to do after a failure that everything given here matches."""

    exit_codes: Annotated[list[Annotated[int, Field(ge=1, le=255)]], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=32,
        description="Exit codes of the rank or container that failed first. Unset: any. Example: [42]",
    )
    signals: Annotated[list[Annotated[int, Field(ge=1, le=64)]], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=32,
        description="Signals that killed it. Unset: any, or none. Example: [9, 11]",
    )
    reasons: Annotated[list[Annotated[str, Field(max_length=64, pattern="^[A-Za-z]+$")]], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=32,
        description="Reasons of a failed run, of docs/failures.md. Unset: any. Example: [NodeLost, Preempted]",
    )
    categories: Annotated[list[Category], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=4,
        description="Where the cause lies: User, Infrastructure, Disruption or Operator, as docs/failures.md says of "
        "each reason; a rank that a signal killed counts as Infrastructure. Unset: anywhere. Example: [Disruption]",
    )
    message_pattern: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="Regular expression (Python's re) that is searched for in the words of the rank that failed first, "
        "as condition Failed quotes them. It may not nest quantifiers, refer back or look around. Unset: any words. "
        "Example: 'CUDA error: (uncorrectable ECC|unspecified launch failure)'",
    )
    action: RuleAction = Field(
        description="Restart: starts the ranks again and counts it, against maxRestarts where the cause is the user's "
        "program, else against maxInfrastructureRestarts. RestartWithoutCounting: without. Fail: ends the run."
    )


class NodeLoss(ApiModel):
    """What becomes of pods on a node that does not answer."""

    force_delete_after_seconds: int | None = Field(
        default=None,
        ge=-1,
        le=86_400,
        description="Seconds after its deletion that such a pod is deleted by force, so that the next attempt may "
        f"begin; at least {FENCE_SECONDS}, after which agents that reach nobody have ended their ranks. -1: never. "
        f"Unset: {DEFAULT_FORCE_SECONDS} where other pods of the attempt were elsewhere, and never where all of them "
        "were on nodes that do not answer, such as the one pod of a job: whoever sets it there says that nothing "
        "of a node that is cut off can write.",
    )


FORCE_AFTER_FENCE = Cel(
    f"!has(self.forceDeleteAfterSeconds) || self.forceDeleteAfterSeconds == -1 || "
    f"self.forceDeleteAfterSeconds >= {FENCE_SECONDS}",
    "spec.failurePolicy.nodeLoss.forceDeleteAfterSeconds: before "
    f"{FENCE_SECONDS} s ranks on a node that is cut off may still write; set {FENCE_SECONDS} or more, or -1 for never",
)


class FailurePolicy(ApiModel):
    """After which failures a run goes on, and how often."""

    max_restarts: Count | None = Field(
        default=None,
        description="How often the ranks start again after failures of the user's program, in a run. Unset: such a "
        "failure ends the run, since it repeats by itself, unless one of the rules says Restart, or the ranks have "
        f"completed a checkpoint since they began, which then holds {DEFAULT_RESTARTS} times. Example: 5",
    )
    max_infrastructure_restarts: Count = Field(
        default=20,
        json_schema_extra=left_open,
        description="How often the ranks start again after failures of nodes, network or cluster, disruptions, and "
        "signals that nobody explains, in 24 hours. Default: 20",
    )
    restart_in_place: bool = Field(
        default=True,
        json_schema_extra=left_open,
        description="True, the default: where the pods are healthy, the ranks start again in them. False: every "
        "restart is a new attempt with new pods.",
    )
    replacement_deadline_seconds: int = Field(
        default=DEFAULT_REPLACEMENT_SECONDS,
        json_schema_extra=left_open,
        ge=0,
        le=86_400,
        description="Where one of several pods is lost: how many seconds the others wait, with their GPUs, until the "
        "ranks run again with another pod in its place; then a new attempt begins. 0: at once. It means nothing "
        "without restartInPlace, and for launchers other than Ranks. "
        f"Default: {DEFAULT_REPLACEMENT_SECONDS}",
    )
    warm_interpreters: WarmInterpreters = Field(
        default=WarmInterpreters.OFF,
        json_schema_extra=left_open,
        description="Auto: each pod keeps a process that has imported what its ranks import, and forks the ranks of a "
        "restart in place from it, which saves them their imports and takes some 1 GiB of memory; where something "
        "speaks against it they start as always, and the log says why. Off, the default: every start is a new "
        "interpreter's.",
    )
    rules: Annotated[list[FailureRule], Atomic()] = Field(
        default=[],
        max_length=MAX_RULES,
        description="What to do after certain failures; the first rule that matches decides. Default: none, so that "
        "only the budgets decide.",
    )
    backoff_seconds: int = Field(
        default=10,
        json_schema_extra=left_open,
        ge=1,
        le=MAX_BACKOFF_SECONDS,
        description=f"Seconds before a restart that follows another one; each further one waits twice as long, "
        f"{MAX_BACKOFF_SECONDS} at most, until the ranks have run for 10 minutes. Default: 10",
    )
    avoid_blamed_nodes: bool = Field(
        default=True,
        json_schema_extra=left_open,
        description="True, the default: later attempts keep off a node that was at fault twice within 24 hours, for as "
        "long. status.attempt.excludedNodes has them.",
    )
    node_loss: Annotated[NodeLoss, FORCE_AFTER_FENCE] | None = Field(
        default=None, description="What becomes of pods on a node that does not answer. Unset: the defaults."
    )
