"""Who failed first, and why: from the agents' termination messages, container states and pod reasons."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from signal import Signals
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from deepspeed_operator.api.base import Model
from deepspeed_operator.api.names import pod_name
from deepspeed_operator.api.status import Failure
from deepspeed_operator.reconcile.conditions import Reason, sentence
from deepspeed_operator.reconcile.gang import Gang
from deepspeed_operator.reconcile.pods import PodView
from deepspeed_operator.reconcile.remedies import RANK_LEFT, remedy

_SIGKILL = 9
_SIGNALLED = 128
_NAMED: Final = frozenset(Signals)
_LEFT: Final = "left with exit code 0 while the others trained"
# An agent that was killed says nothing, and its peers fail a moment later by their lost connection.
_SILENT_DEATH_ADVANTAGE = timedelta(seconds=2)
# All pods of a gang are seen within seconds of their end, or all late: by an operator that was away.
_CLOCKS_DIFFER = timedelta(minutes=1)
_SYMPTOMS = frozenset({"Terminated", "PeerLost", "PeersMissing"})  # of something that another pod may explain
_NOT_FOUND = re.compile(r'exec: "?([^":]+)"?: (?:executable file not found|.*no such file)')


_Number = Annotated[int, Field(ge=0, le=2**31 - 1)]


class AgentMessage(Model):
    """The agent's last words: the first line of a termination message, and the log tail after it.

    Whoever writes to the container's termination log can say anything here: what status would not hold is no message.
    """

    protocol: Literal[1]
    reason: str = Field(pattern=r"^[A-Za-z]+$", max_length=64)
    index: _Number | None = None
    rank: _Number | None = None
    exit_code: _Number | None = None
    signal: _Number | None = None
    node: str | None = Field(default=None, max_length=253)
    signature: str = Field(default="", max_length=1000)
    tail: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """One pod's explanation of its end."""

    pod: PodView
    at: datetime
    weight: int  # 0 explains itself, 1 is the symptom of something elsewhere
    failure: Failure


def agent_message(text: str) -> AgentMessage | None:
    """Parse a termination message, or return None where the agent wrote none (kubelet may put log lines there)."""
    first, _, tail = text.partition("\n")
    try:
        return AgentMessage.model_validate_json(first).model_copy(update={"tail": tail})
    except ValidationError:
        return None


def first_failure(gang: Gang) -> Failure:
    """Return the first cause among the failed pods of the gang, of which there must be one."""
    ended = _ended(gang.failed)
    causes = [_cause(gang, pod, ended[pod.name]) for pod in gang.failed]
    return min(causes, key=lambda cause: (cause.weight, cause.at, cause.pod.index)).failure


def failed_since(gang: Gang) -> datetime:
    """Return when the first pod of the gang was seen to have failed."""
    return min(pod.since for pod in gang.failed)


def gone_pods(gang: Gang) -> Failure:
    """Return the failure of a gang of which a running pod is gone without a trace."""
    return _deleted(gang.missing_names[0], None)


def headline(failure: Failure) -> str:
    """Return the failure in one line with what to do next, for a condition."""
    cause = failure.message.partition("\n")[0]
    return f"{sentence(cause)} {remedy(failure.reason, cause)}"


def _ended(pods: tuple[PodView, ...]) -> dict[str, datetime]:
    """Return when each pod ended: as its node says, which is exact, unless the nodes' clocks are found to differ."""
    said = {pod.name: _said_to_end(pod) for pod in pods}
    late = [pod.since - said[pod.name] for pod in pods]
    return {pod.name: pod.since for pod in pods} if max(late) - min(late) > _CLOCKS_DIFFER else said


def _said_to_end(pod: PodView) -> datetime:
    if pod.termination is not None and pod.termination.finished_at is not None:
        return pod.termination.finished_at
    return pod.deleted_at or pod.since


def _cause(gang: Gang, pod: PodView, at: datetime) -> Cause:
    ended = pod.termination
    said = agent_message(ended.message) if ended is not None and pod.failed_init is None else None
    out_of_memory = ended is not None and ended.reason == "OOMKilled"
    if said is not None and not (out_of_memory and said.index in {None, pod.index}):
        if said.reason == "Terminated" and said.index in {None, pod.index} and (pod.deleted_at or pod.reason):
            return Cause(pod, at, 0, _deleted(pod.name, pod.node) if pod.deleted_at else _in_the_kubelets_words(pod))
        weight = 1 if said.reason in _SYMPTOMS else 0
        return Cause(pod, at, weight, _as_said(gang, pod, said))
    return Cause(pod, at - _SILENT_DEATH_ADVANTAGE, 0, _silent(pod, said))


def _as_said(gang: Gang, pod: PodView, said: AgentMessage) -> Failure:
    origin = gang.pods.get(said.index, pod) if said.index is not None else pod
    name, node = origin.name, origin.node
    if said.index is not None and said.index not in gang.pods:  # it is gone by now, and only its peers tell of it
        name, node = pod_name(gang.job, gang.attempt, said.index), said.node
        if said.reason == "Terminated":
            return _deleted(name, node)
    who = f"rank {said.rank} in {_place(name, node)}" if said.rank is not None else _place(name, node)
    summary = f"{who} {ending(said)}"
    tail = said.tail
    if origin is not pod and origin.termination is not None:  # the origin has the failed rank's own log
        own = agent_message(origin.termination.message)
        tail = own.tail if own is not None and own.tail else tail
    return Failure(
        reason=said.reason,
        rank=said.rank,
        pod=name,
        node=node,
        exit_code=said.exit_code,
        signal=said.signal,
        message=f"{summary}\n{tail}" if tail.strip() else summary,
    )


def _silent(pod: PodView, said: AgentMessage | None) -> Failure:
    """Explain a pod whose agent could not: by its container's state, else by the pod's own reason."""
    ended, place = pod.termination, _place(pod.name, pod.node)
    if ended is None or pod.reason:
        return _in_the_kubelets_words(pod)
    signal = ended.signal or (ended.exit_code - _SIGNALLED if ended.exit_code > _SIGNALLED else None)
    container = f"container {pod.failed_init or pod.trainer} of {place}"
    log = said.tail if said is not None else ended.message
    absent = _NOT_FOUND.search(ended.message)
    if pod.failed_init is not None:
        reason, summary = Reason.INIT_CONTAINER_FAILED, f"init {container} {how(ended.exit_code, signal)}"
    elif ended.reason == "OOMKilled":
        victim = f"rank {said.rank} in {container}" if said is not None and said.rank is not None else container
        reason, summary = Reason.OUT_OF_MEMORY, f"{victim} was killed: out of memory (the kernel's OOM killer)"
    elif absent is not None:
        python = absent.group(1).rpartition("/")[2].startswith("python")
        reason = Reason.PYTHON_NOT_FOUND if python else Reason.CONTAINER_CANNOT_START
        summary = f"{container} could not start: the image has no {absent.group(1)}"
    elif ended.reason in {"ContainerCannotRun", "StartError"}:
        reason, summary = Reason.CONTAINER_CANNOT_START, f"{container} could not start"
    elif signal == _SIGKILL:
        reason = Reason.CONTAINER_KILLED
        summary = f"{container} was killed by signal 9 from outside (the node's OOM killer, or a person)"
    else:
        reason, summary = Reason.CONTAINER_FAILED, f"{container} {how(ended.exit_code, signal)}"
    return Failure(
        reason=reason,
        rank=said.rank if said is not None else None,
        pod=pod.name,
        node=pod.node,
        exit_code=ended.exit_code,
        signal=signal,
        message=f"{summary}\n{log}" if log.strip() else summary,
    )


def _in_the_kubelets_words(pod: PodView) -> Failure:
    reason = Reason.EVICTED if pod.reason == "Evicted" else Reason.POD_FAILED
    words = ": ".join(part for part in (pod.reason, pod.message) if part) or "no reason given"
    return Failure(reason=reason, pod=pod.name, node=pod.node, message=f"{_place(pod.name, pod.node)} failed: {words}")


def _deleted(name: str, node: str | None) -> Failure:
    words = f"{_place(name, node)} was deleted while its ranks ran, by a person, a drain, an eviction or with its node"
    return Failure(reason=Reason.POD_DELETED, pod=name, node=node, message=words)


def ending(said: AgentMessage) -> str:
    """Return how a rank, a program or a pod ended, and what it said of it."""
    end = _LEFT if said.reason == RANK_LEFT else how(said.exit_code, said.signal)
    return f"{end}: {said.signature}" if said.signature else end


def how(exit_code: int | None, signal: int | None) -> str:
    """Return how a process ended, in words."""
    if signal is not None:
        name = f" ({Signals(signal).name})" if signal in _NAMED else ""
        return f"was killed by signal {signal}{name}"
    return f"exited with code {exit_code}" if exit_code is not None else "failed"


def _place(name: str, node: str | None) -> str:
    return f"pod {name} on node {node}" if node else f"pod {name}"
