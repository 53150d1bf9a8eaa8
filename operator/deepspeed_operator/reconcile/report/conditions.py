"""The vocabulary of states and reasons, and the conditions that follow from them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from deepspeed_operator.api.status import MAX_MESSAGE, Condition, ConditionType, DeepSpeedJobStatus, State

_OF_THE_STATE: Final = tuple(kind for kind in ConditionType if kind is not ConditionType.MEMORY_FIT)
_WHAT_IT_SAYS: Final[dict[State, dict[ConditionType, bool]]] = {
    State.INVALID: {ConditionType.STALLED: True},
    State.STARTING: {ConditionType.ACCEPTED: True, ConditionType.RECONCILING: True},
    State.RUNNING: {ConditionType.ACCEPTED: True, ConditionType.RUNNING: True, ConditionType.READY: True},
    State.SUSPENDING: {ConditionType.ACCEPTED: True, ConditionType.RECONCILING: True},
    # As with a Kubernetes Job, suspended is what was asked for: a GitOps sync does not wait for more.
    State.SUSPENDED: {ConditionType.ACCEPTED: True, ConditionType.SUSPENDED: True, ConditionType.READY: True},
    State.COMPLETE: {ConditionType.ACCEPTED: True, ConditionType.COMPLETE: True, ConditionType.READY: True},
    State.FAILED: {ConditionType.ACCEPTED: True, ConditionType.FAILED: True, ConditionType.STALLED: True},
}
# Ready has the words for the whole job; beside it they stand only in the condition that they are about.
_ABOUT: Final = {
    State.INVALID: ConditionType.ACCEPTED,
    State.STARTING: ConditionType.RUNNING,
    State.RUNNING: ConditionType.RUNNING,
    State.SUSPENDING: ConditionType.SUSPENDED,
    State.SUSPENDED: ConditionType.SUSPENDED,
    State.COMPLETE: ConditionType.COMPLETE,
    State.FAILED: ConditionType.FAILED,
}
_FOR_TOOLS: Final = frozenset({ConditionType.RECONCILING, ConditionType.STALLED})
_SEE_READY: Final = "See condition Ready."


class Reason(StrEnum):
    """Reasons that the operator itself gives; a failed run's reason may also be one of the agent's."""

    ACCEPTED = "Accepted"
    NO_CONFIG = "NoConfig"
    INVALID_SPEC = "InvalidSpec"
    INVALID_CONFIG = "InvalidDeepSpeedConfig"
    CONFIG_NOT_FOUND = "ConfigNotFound"
    FILES_NOT_FOUND = "FilesNotFound"
    TEMPLATE_REJECTED = "TemplateRejected"
    DOES_NOT_FIT = "DoesNotFit"
    SET_ASIDE = "SetAside"
    NAME_CONFLICT = "NameConflict"
    PODS_REFUSED = "PodsRefused"

    STARTING = "Starting"
    WAITING_FOR_OLD_PODS = "WaitingForOldPods"
    CONFIG_UNAVAILABLE = "ConfigUnavailable"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONTAINER_CANNOT_START = "ContainerCannotStart"
    VOLUMES_NOT_READY = "VolumesNotReady"
    WAITING_FOR_PEERS = "WaitingForPeers"

    RUNNING = "Running"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    COMPLETED = "Completed"

    STARTUP_DEADLINE_EXCEEDED = "StartupDeadlineExceeded"
    OUT_OF_MEMORY = "OutOfMemory"
    CONTAINER_KILLED = "ContainerKilled"
    CONTAINER_FAILED = "ContainerFailed"
    INIT_CONTAINER_FAILED = "InitContainerFailed"
    PYTHON_NOT_FOUND = "PythonNotFound"
    EVICTED = "Evicted"
    POD_FAILED = "PodFailed"
    POD_DELETED = "PodDeleted"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The job's state in one word, why, and what a person should know or do."""

    state: State
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Statement:
    """What a condition says that does not follow from the state."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


def sentence(words: str) -> str:
    """End somebody else's words, which may or may not have a full stop, with one."""
    return f"{words.rstrip(' .')}."


def condition(status: DeepSpeedJobStatus, kind: ConditionType) -> Condition | None:
    """Return the condition of this type, if it was ever set."""
    return next((each for each in status.conditions if each.type == kind), None)


def is_true(status: DeepSpeedJobStatus, kind: ConditionType) -> bool:
    found = condition(status, kind)
    return found is not None and found.status == "True"


def is_finished(status: DeepSpeedJobStatus) -> bool:
    """Whether the recorded run has its result, which nothing but another runId replaces."""
    return status.completion_time is not None  # the conditions may speak of a next run that was refused


def is_suspended(status: DeepSpeedJobStatus) -> bool:
    """Whether the recorded attempt was told to end: only another one can follow it."""
    return status.attempt is not None and status.attempt_time is None


def conditions(
    verdict: Verdict,
    acceptance: Verdict | None,
    previous: DeepSpeedJobStatus,
    *,
    generation: int,
    now: str,
    memory: Statement | None = None,
    unrun: str = "",
) -> list[Condition]:
    """Return all conditions for a verdict; a transition time changes only when a status flips.

    `acceptance` gives the reason and message of Accepted, and `memory` those of MemoryFit, where they were judged just
    now; else they stay as they were. `unrun` is what Ready says besides of changes that no run has taken.
    """
    says = _WHAT_IT_SAYS[verdict.state]
    words = {kind: _SEE_READY for kind in _FOR_TOOLS if kind in says}
    words |= {_ABOUT[verdict.state]: verdict.message, ConditionType.READY: verdict.message + unrun}
    said = {
        kind: Statement("True" if says.get(kind, False) else "False", verdict.reason, words.get(kind, ""))
        for kind in _OF_THE_STATE
    }
    befores = {each.type: each for each in previous.conditions}
    accepted = acceptance or befores.get(ConditionType.ACCEPTED)
    if ConditionType.ACCEPTED in says and accepted is not None:
        said[ConditionType.ACCEPTED] = Statement("True", accepted.reason, accepted.message)
    before = befores.get(ConditionType.MEMORY_FIT)
    if memory is not None:
        said[ConditionType.MEMORY_FIT] = memory
    elif before is not None:
        said[ConditionType.MEMORY_FIT] = Statement(before.status, before.reason, before.message)
    return [_stated(kind, each, befores.get(kind), generation=generation, now=now) for kind, each in said.items()]


def _stated(kind: ConditionType, said: Statement, before: Condition | None, *, generation: int, now: str) -> Condition:
    return Condition(
        type=kind,
        status=said.status,
        reason=said.reason,
        message=_bounded(said.message),
        last_transition_time=before.last_transition_time if before and before.status == said.status else now,
        observed_generation=generation,
    )


def _bounded(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"
