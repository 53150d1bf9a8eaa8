"""Who failed first, and why: from the agents' termination messages, container states and pod reasons."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from signal import Signals
from typing import Final

from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Failure
from deepspeed_operator.reconcile.observe.gang import Gang, last_messages
from deepspeed_operator.reconcile.observe.messages import AgentMessage, agent_message, ending, how
from deepspeed_operator.reconcile.observe.pods import PodView
from deepspeed_operator.reconcile.report.verdict import sentence

_SIGKILL = 9
_SIGNALLED = 128
_ENDED_BY_DELETION: Final = frozenset({_SIGNALLED + Signals.SIGTERM, _SIGNALLED + Signals.SIGKILL})
# An agent that was killed says nothing, and its peers fail a moment later by their lost connection.
_SILENT_DEATH_ADVANTAGE = timedelta(seconds=2)
# All pods of a gang are seen within seconds of their end, or all late: by an operator that was away.
_CLOCKS_DIFFER = timedelta(minutes=1)
_SYMPTOMS = frozenset(
    {Reason.TERMINATED, Reason.PEER_LOST, Reason.PEERS_MISSING}
)  # of something that another pod may explain
# What runtimes and kubelets that have restarted say of a container that ran before.
_NOBODY_KNOWS: Final = frozenset({"Unknown", "ContainerStatusUnknown"})
_NOT_FOUND = re.compile(r'exec: "?([^":]+)"?: (?:executable file not found|.*no such file)')


_MOST_DEVICES: Final = 8
# The reasons of a pod's condition DisruptionTarget: kubernetes.io/docs/concepts/workloads/pods/disruptions.
_DISRUPTIONS: Final = {
    "PreemptionByScheduler": (Reason.PREEMPTED, "was preempted by the scheduler, for a pod of higher priority"),
    "EvictionByEvictionAPI": (Reason.DRAINED, "was evicted through the API, as by a drain of its node"),
    "DeletionByTaintManager": (Reason.DRAINED, "was deleted for a taint of its node (NoExecute)"),
    "DeletionByPodGC": (Reason.NODE_LOST, "was deleted with its node"),
    "TerminationByKubelet": (Reason.EVICTED, "was ended by its node's kubelet"),
}


@dataclass(frozen=True, slots=True)
class Cause:
    """One pod's explanation of its end."""

    pod: PodView
    at: datetime
    weight: int  # 0 explains itself, 1 is the symptom of something elsewhere
    failure: Failure


def first_failure(gang: Gang) -> Failure:
    """Return the first cause among the pods of the gang that have failed or are gone, of which there must be one."""
    pods = (*gang.failed, *gang.lost.values())
    ended = _ended(pods, _clocks(gang))
    causes = [_cause(gang, pod, ended[pod.name]) for pod in pods]
    first = min(causes, key=lambda cause: (cause.weight, cause.at, cause.pod.index))
    return _with_devices(first.failure, first.pod)


def failed_since(gang: Gang) -> datetime:
    """Return when the first pod of the gang was seen to have failed."""
    return min(pod.since for pod in gang.failed)


def loss_of(gang: Gang, index: int) -> Failure:
    """Return why the pod with this index has ended or is gone, as far as it and its node tell."""
    pod = gang.pods.get(index) or gang.lost.get(index)
    if pod is None:
        return _deleted(gang.name_of(index), None)
    return _with_devices(_cause(gang, pod, pod.since).failure, pod)


def of_a_stuck_pod(gang: Gang, said: AgentMessage) -> Failure:
    """Return the failure of a gang whose first pod tells it itself, since it cannot end."""
    return _as_said(gang, gang.pods[0], said)


def gone_pods(gang: Gang) -> Failure:
    """Return the failure of a gang of which a running pod is gone; without a trace, if nobody saw it go."""
    return first_failure(gang) if gang.lost else _deleted(gang.missing_names[0], None)


def _clocks(gang: Gang) -> Mapping[int, float]:
    """Return how many seconds the clocks of nodes are ahead of most, by the index of the pod there."""
    return next((said.clocks for said in last_messages(gang) if said.clocks), dict[int, float]())


def _ended(pods: tuple[PodView, ...], clocks: Mapping[int, float]) -> dict[str, datetime]:
    """Return when each pod ended: as its node says, which is exact, less what its clock is known to be ahead.

    Where the clocks differ all the same, when it was seen to have.
    """
    said = {pod.name: _said_to_end(pod, timedelta(seconds=clocks.get(pod.index, 0))) for pod in pods}
    late = [pod.since - said[pod.name] for pod in pods]
    return {pod.name: pod.since for pod in pods} if max(late) - min(late) > _CLOCKS_DIFFER else said


def _said_to_end(pod: PodView, ahead: timedelta) -> datetime:
    if pod.termination is not None and pod.termination.finished_at is not None:
        return pod.termination.finished_at - ahead
    return pod.deleted_at or pod.since


def _cause(gang: Gang, pod: PodView, at: datetime) -> Cause:
    ended = pod.termination
    said = agent_message(ended.message) if ended is not None and pod.failed_init is None else None
    out_of_memory = ended is not None and ended.reason == "OOMKilled"
    if said is not None and not (out_of_memory and said.index in {None, pod.index}):
        if said.reason == Reason.TERMINATED and said.index in {None, pod.index} and (pod.deleted_at or pod.reason):
            return Cause(pod, at, 0, ended_by(pod) if pod.deleted_at else _in_the_kubelets_words(pod))
        weight = 1 if said.reason in _SYMPTOMS else 0
        return Cause(pod, at, weight, _as_said(gang, pod, said))
    if pod.deleted_at is not None and ended is not None and ended.exit_code in _ENDED_BY_DELETION and not out_of_memory:
        return Cause(pod, at, 0, ended_by(pod))  # before its agent could say so
    if pod.gone and ended is None:
        return Cause(pod, at, 0, ended_by(pod))
    return Cause(pod, at - _SILENT_DEATH_ADVANTAGE, 0, _silent(pod, said))


def _as_said(gang: Gang, pod: PodView, said: AgentMessage) -> Failure:
    origin = _origin(gang, pod, said)
    if origin is not None:
        name, node = origin.name, origin.node
    else:
        name, node = said.pod or gang.name_of(said.index or 0), said.node
        if said.reason == Reason.TERMINATED:
            return _deleted(name, node)
    who = f"rank {said.rank} in {_place(name, node)}" if said.rank is not None else _place(name, node)
    summary = f"{who} {ending(said)}"
    summary = f"{sentence(summary)} {said.stuck}" if said.stuck else summary
    tail = said.tail
    of_origin = origin.termination if origin is not None and origin is not pod else None
    if of_origin is not None:  # it has the failed rank's own log
        own = agent_message(of_origin.message)
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


def _origin(gang: Gang, pod: PodView, said: AgentMessage) -> PodView | None:
    """Return the pod that the words of `pod` are about; None if it is gone or replaced."""
    if said.index is None:
        return pod
    origin = gang.pods.get(said.index)
    replaced = said.index in gang.replacements and said.pod is not None
    return None if origin is not None and replaced and said.pod != origin.name else origin


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
        reason, summary = Reason.HOST_OUT_OF_MEMORY, f"{victim} was killed: out of memory (the kernel's OOM killer)"
    elif absent is not None:
        python = absent.group(1).rpartition("/")[2].startswith("python")
        reason = Reason.PYTHON_NOT_FOUND if python else Reason.CONTAINER_CANNOT_START
        summary = f"{container} could not start: the image has no {absent.group(1)}"
    elif ended.reason in _NOBODY_KNOWS:
        reason, summary = Reason.NODE_LOST, f"{container} ended with its node or its container runtime, which restarted"
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


def ended_by(pod: PodView) -> Failure:
    """Explain a pod that was deleted: by the word that Kubernetes has left on it, if it did."""
    reason, words = _DISRUPTIONS.get(pod.disruption or "", (None, ""))
    if reason is None:
        return _deleted(pod.name, pod.node)
    if reason == Reason.DRAINED and pod.lost_since is not None:
        reason, words = Reason.NODE_LOST, "was deleted since its node does not answer"
    return Failure(reason=reason, pod=pod.name, node=pod.node, message=f"{_place(pod.name, pod.node)} {words}")


def _with_devices(failure: Failure, pod: PodView) -> Failure:
    """Add what the pod's node says of its devices."""
    if not pod.unhealthy:
        return failure
    return saying_more(failure, f"; its node reports as unhealthy: {', '.join(pod.unhealthy[:_MOST_DEVICES])}")


def saying_more(failure: Failure, words: str) -> Failure:
    """Return the failure with these words after its cause, before the log."""
    cause, newline, log = failure.message.partition("\n")
    return failure.model_copy(update={"message": f"{cause}{words}{newline}{log}"})


def _deleted(name: str, node: str | None) -> Failure:
    words = f"{_place(name, node)} was deleted while its ranks ran, by a person, a drain, an eviction or with its node"
    return Failure(reason=Reason.POD_DELETED, pod=name, node=node, message=words)


def _place(name: str, node: str | None) -> str:
    return f"pod {name} on node {node}" if node else f"pod {name}"
