"""Projection of a pod to what decides something, small enough to keep for tens of thousands of pods."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from sys import intern
from typing import Any

from deepspeed_operator.api.names import (
    ANNOTATION_TEMPLATE,
    ENV_INDEX,
    LABEL_ATTEMPT,
    LABEL_INDEX,
    LABEL_JOB_NAME,
    LABEL_JOB_UID,
    LABEL_REPLACEMENT,
)

# Kueue and others take it away when it is the pod's turn.
_GATED = "SchedulingGated"
_FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


class Stage(Enum):
    """How far a pod has come, as far as anything waits for the next step."""

    UNSCHEDULED = auto()
    BEING_SET_UP = auto()
    SET_UP = auto()
    RUNNING = auto()
    FINISHED = auto()


@dataclass(frozen=True, slots=True)
class Termination:
    """How a container ended."""

    exit_code: int
    signal: int | None
    reason: str
    message: str
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of a job. `termination` is the trainer container's: its end is the pod's end for us."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    job_name: str
    job_uid: str
    attempt: int
    index: int
    template: str | None  # the digest of spec.template of which it was made
    node: str | None
    address: str | None
    phase: str
    ready: bool  # the trainer: sidecars and readiness gates keep no ranks from running
    since: datetime  # when it was first seen at this stage: nodes have clocks of their own
    deleted_at: datetime | None
    grace_ends: datetime | None  # of one that was deleted: when its node kills what still runs
    lost_since: datetime | None  # when its node ceased to tell of it
    reason: str  # the pod's own, such as Evicted
    message: str
    unschedulable: str | None  # the scheduler's words
    gates: tuple[str, ...]  # what keeps the scheduler from it, such as a queue
    set_up: bool  # False where its node says that it has yet to mount volumes and make a network
    waiting_container: str | None  # the container that cannot start, with the kubelet's reason and words
    waiting_reason: str | None
    waiting_message: str | None
    trainer: str
    failed_init: str | None  # an init container that failed, whose end `termination` then is
    termination: Termination | None
    disruption: str | None = None  # who ends it, in Kubernetes' word (the reason of DisruptionTarget)
    unschedulable_since: datetime | None = None
    requests: tuple[tuple[str, str], ...] = ()  # of all containers, by resource; an extended one's is a number
    node_selector: tuple[tuple[str, str], ...] = ()
    unhealthy: tuple[str, ...] = ()  # devices of the trainer that its node reports as unhealthy
    gone: bool = False  # deleted; what it was last like is kept
    replacement: int = 0  # its number among the attempt's; 0 for a pod that the attempt began with

    @property
    def finished(self) -> bool:
        """Whether no process of the trainer can run any more."""
        return self.termination is not None or self.phase in _FINISHED_PHASES

    @property
    def stage(self) -> Stage:
        if self.finished:
            return Stage.FINISHED
        if self.phase == "Running":
            return Stage.RUNNING
        if self.node is None:
            return Stage.UNSCHEDULED
        return Stage.SET_UP if self.set_up else Stage.BEING_SET_UP

    @property
    def released(self) -> bool:
        """Whether the whole pod has ended, sidecars included, so that it holds no GPU."""
        return self.phase in _FINISHED_PHASES

    @property
    def succeeded(self) -> bool:
        if self.termination is not None:
            return self.termination.exit_code == 0
        return self.phase == "Succeeded"

    @property
    def failed(self) -> bool:
        return self.finished and not self.succeeded

    def last_view(self) -> "PodView":
        """Return what to keep of a pod that is gone: how it ended, or who ended it."""
        phase = "Succeeded" if self.succeeded else "Failed"
        return replace(self, phase=phase, ready=False, deleted_at=self.deleted_at or self.since, gone=True)

    def after(self, earlier: "PodView | None") -> "PodView":
        """Return this view with the `since` of an earlier one, if that saw the pod at the same stage."""
        if earlier is None or (earlier.uid, earlier.stage) != (self.uid, self.stage):
            return self
        return replace(self, since=earlier.since)


def pod_view(pod: Mapping[str, Any], now: datetime) -> PodView:
    """Project a pod of ours, as the API server writes it and as it is seen now.

    Raises KeyError or ValueError if it lacks our labels: then it is not ours.
    """
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    labels = metadata["labels"]
    trainer = _trainer(spec["containers"])
    statuses: dict[str, Mapping[str, Any]] = {each["name"]: each for each in status.get("containerStatuses", [])}
    of_trainer = statuses.get(trainer, {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    scheduled = conditions.get("PodScheduled", {})
    unscheduled = scheduled.get("status") == "False" and scheduled.get("reason") != _GATED
    phase = status.get("phase", "Pending")
    set_up = phase != "Pending" or conditions.get("PodReadyToStartContainers", {}).get("status") != "False"
    trainer_ended = _termination(of_trainer.get("state", {}))
    failed_init = _failed_init(status) if trainer_ended is None else None
    lost_since = _lost_since(conditions.get("Ready", {}), now)
    disrupted = conditions.get("DisruptionTarget", {})
    waiting = _waiting([*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])])
    return PodView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        job_name=labels[LABEL_JOB_NAME],
        job_uid=labels[LABEL_JOB_UID],
        attempt=int(labels[LABEL_ATTEMPT]),
        index=int(labels[LABEL_INDEX]),
        replacement=int(labels.get(LABEL_REPLACEMENT, 0)),
        template=metadata.get("annotations", {}).get(ANNOTATION_TEMPLATE),
        node=spec.get("nodeName"),
        address=status.get("podIP"),
        phase=phase,
        # A kubelet calls the startup probe of a pod a success that is deleted before it has started.
        ready=of_trainer.get("ready", False) and lost_since is None and "deletionTimestamp" not in metadata,
        since=now,
        deleted_at=_deleted_at(metadata),
        grace_ends=moment(metadata["deletionTimestamp"]) if "deletionTimestamp" in metadata else None,
        lost_since=lost_since,
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        unschedulable=scheduled.get("message", "") if unscheduled else None,
        gates=tuple(gate["name"] for gate in spec.get("schedulingGates", [])),
        set_up=set_up,
        waiting_container=waiting[0] if waiting else None,
        waiting_reason=waiting[1] if waiting else None,
        waiting_message=waiting[2] if waiting else None,
        trainer=trainer,
        failed_init=failed_init[0] if failed_init else None,
        termination=failed_init[1] if failed_init else trainer_ended,
        disruption=disrupted.get("reason") if disrupted.get("status") == "True" else None,
        unschedulable_since=_transition(scheduled, now) if unscheduled else None,
        requests=_requests(spec["containers"]),
        node_selector=tuple(sorted(spec.get("nodeSelector", {}).items())),
        unhealthy=tuple(_unhealthy(of_trainer)),
    )


def _requests(containers: list[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Return what the containers ask of a node; of resources that several ask for, what the last one does."""
    asked: dict[str, str] = {}
    for container in containers:
        resources = container.get("resources", {})
        asked |= {**resources.get("limits", {}), **resources.get("requests", {})}
    # Thousands of pods ask for the same.
    return tuple((intern(name), intern(str(asked[name]))) for name in sorted(asked) if str(asked[name]) != "0")


def _unhealthy(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the devices that the kubelet calls unhealthy: since Kubernetes 1.31, where that is switched on."""
    for resource in status.get("allocatedResourcesStatus", []):
        for device in resource.get("resources", []):
            if device.get("health") == "Unhealthy":
                yield f"{resource['name']} {device['resourceID']}"


def _deleted_at(metadata: Mapping[str, Any]) -> datetime | None:
    """Return when it was deleted: what the API server writes is when its grace ends."""
    if "deletionTimestamp" not in metadata:
        return None
    return moment(metadata["deletionTimestamp"]) - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)


def moment(timestamp: str) -> datetime:
    """Parse a Kubernetes timestamp (RFC 3339, UTC)."""
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00"))


def timestamp(moment: datetime) -> str:
    """Write a moment as Kubernetes does: RFC 3339, UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _trainer(containers: list[Mapping[str, Any]]) -> str:
    """Return the container to which we gave an index: its name is the user's choice."""
    for container in containers:
        if any(variable["name"] == ENV_INDEX for variable in container.get("env", [])):
            return str(container["name"])
    raise ValueError("no container of this pod has our index")


def _lost_since(ready: Mapping[str, Any], now: datetime) -> datetime | None:
    """Only the node controller, which cannot see into the pod, says False without a reason."""
    if ready.get("status") != "False" or ready.get("reason"):
        return None
    return _transition(ready, now)


def _transition(condition: Mapping[str, Any], now: datetime) -> datetime:
    return moment(condition["lastTransitionTime"]) if condition.get("lastTransitionTime") else now


def _termination(state: Mapping[str, Any]) -> Termination | None:
    ended = state.get("terminated")
    if ended is None:
        return None
    return Termination(
        exit_code=ended["exitCode"],
        signal=ended.get("signal") or None,
        reason=ended.get("reason", ""),
        message=ended.get("message", ""),
        finished_at=moment(ended["finishedAt"]) if ended.get("finishedAt") else None,
    )


def _failed_init(status: Mapping[str, Any]) -> tuple[str, Termination] | None:
    """Return the init container whose failure ended the pod before its trainer began."""
    if status.get("phase") != "Failed":
        return None
    for container in status.get("initContainerStatuses", []):
        ended = _termination(container.get("state", {}))
        if ended is not None and ended.exit_code != 0:
            return container["name"], ended
    return None


def _waiting(statuses: list[Mapping[str, Any]]) -> tuple[str, str, str] | None:
    """Return the first container that waits for more than its turn: name, reason, message."""
    for status in statuses:
        waiting = status.get("state", {}).get("waiting")
        if waiting and waiting.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
            return status["name"], waiting["reason"], waiting.get("message", "")
    return None
